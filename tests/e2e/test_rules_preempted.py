"""Answers under rules are the same to the bit where pages are scarce, tokens are drafted, clients are slow or gone: each kind of rule with each kind of
speculation, while sequences are preempted, beside streams that are read slowly or dropped."""
import http.client
import json
import threading
import time

import pytest

from conftest import KEY, Server
from together import answers_together

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}, "kind": {"enum": ["a long fixed text", "another fixed text"]},
                                           "list": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 3, "maxItems": 6}},
          "required": ["name", "kind", "list"], "additionalProperties": False}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
TOOLS = {"tools": [{"type": "function", "function": {"name": "find_it", "parameters": SCHEMA}}, {"type": "function", "function": {"name": "ping"}}]}
LARK = {"type": "custom", "custom": {"name": "write", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: ("line " /[a-z]+/ "\\n")+\n'}}}}
KINDS = {
    "schema": {**FORMAT, "temperature": 0.9, "seed": 1},
    "greedy schema": {**FORMAT, "temperature": 0},
    "four under a schema": {**FORMAT, "temperature": 1.1, "seed": 2, "n": 4},
    "schema, log-probabilities": {**FORMAT, "temperature": 0.8, "seed": 3, "logprobs": True, "top_logprobs": 3},
    "schema behind reasoning": {**FORMAT, "temperature": 0.9, "seed": 4, "thinking_token_budget": 9, "n": 2},
    "tools required": {**TOOLS, "temperature": 0.9, "seed": 5, "tool_choice": "required"},
    "a tool, reasoning": {**TOOLS, "temperature": 0.9, "seed": 6, "tool_choice": {"type": "function", "function": {"name": "find_it"}}, "thinking_token_budget": 6},
    "tools auto": {**TOOLS, "temperature": 1.0, "seed": 7, "thinking_token_budget": 0},
    "custom tool": {"tools": [LARK], "temperature": 0.9, "seed": 8, "tool_choice": "required", "n": 2},
    "regex": {"structured_outputs": {"regex": "(A fixed beginning, [a-z]{3,9}; and a fixed end\\. ){2,5}"}, "temperature": 0.9, "seed": 9},
    "mirostat": {**FORMAT, "temperature": 0.9, "seed": 10, "mirostat": 2},
    "beams": {**FORMAT, "use_beam_search": True, "beam_width": 3, "n": 2, "max_tokens": 50},
}
SPECULATION = {
    "none": None,
    "ngram": {"method": "ngram", "num_speculative_tokens": 4},
    "suffix trees": {"method": "suffix", "num_speculative_tokens": 8, "tree_width": 3},
    "draft model": {"method": "draft_model", "model": "builtin-small", "num_speculative_tokens": 4},
    "draft model trees": {"method": "draft_model", "model": "builtin-small", "num_speculative_tokens": 8, "tree_width": 3},
}
PAGES = 36  # of 16 tokens: what the longest of these takes, and less than three of them
preemptions = []


def start(speculation=None, *flags):
    flags = ["--api-key", KEY, "--tool-call-parser", "hermes", "--reasoning-parser", "deepseek_r1", "--max-model-len", "512", "--max-num-seqs", "10", *flags]
    if speculation:
        flags += ["--speculative-config", json.dumps(speculation)]
    return Server("builtin", *flags)


def body(kind):
    return {"messages": [{"role": "user", "content": "Say it."}], "max_tokens": 110, "logit_bias": {"2": 3}, **KINDS[kind]}


def answer(server, kind):
    status, _, text = server.ask("POST", "/v1/chat/completions", body(kind))
    assert status == 200, (kind, text)
    return choices_of(text)


def choices_of(text):
    choices = json.loads(text)["choices"]
    for c in choices:
        for call in c["message"].get("tool_calls") or []:
            call.pop("id")
    return choices


def read_some(server, kind, n_bytes, pause):
    """Reads the beginning of a stream, slowly, and goes."""
    connection = http.client.HTTPConnection(*server.address, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps({**body(kind), "stream": True}),
                       {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
    got = connection.getresponse()
    for _ in range(n_bytes // 40):
        if not got.read(40):
            break
        time.sleep(pause)
    connection.close()


@pytest.fixture(scope="module")
def expected(quire):
    server = start()
    answers = {kind: answer(server, kind) for kind in KINDS}
    assert server.stop() == 0
    return answers


@pytest.mark.parametrize("speculation", SPECULATION)
def test_answers_under_rules_are_those_of_a_roomy_server(expected, speculation):
    server = start(SPECULATION[speculation], "--kv-pages", str(PAGES))
    for _ in range(2):
        beside = [threading.Thread(target=read_some, args=(server, kind, size, pause))
                  for kind, size, pause in (("schema", 400, 0), ("four under a schema", 2000, 0.01), ("tools required", 800, 0), ("regex", 4000, 0.02), ("beams", 40, 0))]
        got = answers_together(lambda kind: answer(server, kind), KINDS, *beside)
        for kind in KINDS:
            assert got[kind] == expected[kind], kind
    preemptions.append(server.metric(r'vllm:num_preemptions_total\{[^}]*\}'))
    while server.metric("vllm:num_requests_running") > 0:  # of those that have gone
        time.sleep(0.01)
    assert server.stop() == 0


def test_answers_beside_refused_ones_are_the_same(expected):
    """Where connections run out, some get 503; whoever gets an answer gets the one of a roomy server."""
    server = start(None, "--kv-pages", str(PAGES), "--max-connections", "7")
    refused = []

    def ask(kind):
        try:
            status, _, text = server.ask("POST", "/v1/chat/completions", body(kind))
        except (BrokenPipeError, ConnectionResetError):  # refused before its body was sent
            status = 503
        refused.append(status == 503)
        if refused[-1]:
            return expected[kind]
        assert status == 200, (kind, text)
        return choices_of(text)
    for _ in range(3):
        assert answers_together(ask, KINDS) == expected
    assert 0 < sum(refused) < len(refused)
    assert server.metric("vllm:num_requests_running") == 0
    assert server.stop() == 0


def test_sequences_were_preempted():
    assert not preemptions or sum(preemptions) > 0, preemptions
