"""Rules behind reasoning, and budgets of it: the built-in model with marks as tokens, which it writes where nothing else may come."""
import http.client
import json
import re

import openai
import pytest

from conftest import KEY, Server
from marked_model import with_marks

# The prompt ends inside the reasoning, behind a closed block of it, or leaves the opening mark to the model.
TEMPLATE = ("{# <tool_call> <think> #}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
            "{% if enable_thinking == false %}<think></think>{% elif not free %}<think>\n{% endif %}")
USER = [{"role": "user", "content": "What is the weather in Rome?"}]
MARKS = {"<think>": True, "</think>": True, "<tool_call>": False, "</tool_call>": False}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "y"]}},
          "required": ["a", "b"], "additionalProperties": False}
JSON = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
FLAGS = {"plain": [], "tiny pool": ["--kv-pages", "12", "--page-size", "16", "--max-num-seqs", "4", "--max-model-len", "160"], "speculation": ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}']}


@pytest.fixture(scope="module")
def model(quire, tmp_path_factory):
    return with_marks(tmp_path_factory.mktemp("reasoning") / "model", MARKS, TEMPLATE)


def serve(model, *flags):
    return Server(str(model[0]), "--api-key", KEY, "--served-model-name", "builtin", *flags)


@pytest.fixture(scope="module")
def client(model):
    s = serve(model, "--json-whitespace", "compact")
    with openai.OpenAI(base_url=s.url + "/v1", api_key=KEY, max_retries=0) as c:
        c.opening, c.closing = model[1], model[1] + 1
        yield c
    assert s.stop() == 0


def ask(client, **fields):
    """(reasoning, content, ids, finish) of each choice, whole and streamed alike."""
    extra = {"return_token_ids": True, **fields.pop("extra_body", {})}
    fields = {"model": "builtin", "messages": USER, "max_tokens": 120, "seed": 5, **fields}
    answer = client.chat.completions.create(extra_body=extra, **fields)
    found = [(c.message.model_dump().get("reasoning") or "", c.message.content or "", c.token_ids, c.finish_reason) for c in answer.choices]
    parts = [["", "", None] for _ in found]
    for chunk in client.chat.completions.create(extra_body=extra, stream=True, **fields):
        for c in chunk.choices:
            parts[c.index][0] += c.delta.model_dump().get("reasoning") or ""
            parts[c.index][1] += c.delta.content or ""
            parts[c.index][2] = c.finish_reason or parts[c.index][2]
    assert [tuple(p) for p in parts] == [(f[0], f[1], f[3]) for f in found]
    return found


def check_json(content):
    value = json.loads(content)
    assert set(value) == {"a", "b"} and 0 <= value["a"] <= 99 and value["b"] in ("x", "y")


def test_a_rule_binds_behind_the_reasoning_that_the_prompt_opens(client):
    for reasoning, content, ids, finish in ask(client, n=3, extra_body={"thinking_token_budget": 12}, **JSON):
        assert finish == "stop" and reasoning
        check_json(content)
        assert ids.index(client.closing) <= 12


@pytest.mark.parametrize("budget", [0, 1, 7])
def test_the_reasoning_ends_at_its_budget(client, budget):
    never = {str(client.closing): -100, str(client.opening): -100}  # the model would never end it
    for reasoning, content, ids, _ in ask(client, n=2, max_tokens=30, logit_bias=never, extra_body={"thinking_token_budget": budget, "ignore_eos": True}):
        assert ids.index(client.closing) == budget and bool(reasoning) == (budget > 0) and content
    for reasoning, content, ids, _ in ask(client, n=2, logit_bias=never, extra_body={"thinking_token_budget": budget}, **JSON):
        assert ids.index(client.closing) >= budget  # a character that the budget would cut is completed
        check_json(content)


def test_beams_think_within_the_budget(client):
    extra = {"thinking_token_budget": 5, "beam_width": 3, "return_token_ids": True}
    answer = client.chat.completions.create(model="builtin", messages=USER, n=3, max_tokens=80, extra_body=extra, **JSON)
    for choice in answer.choices:
        assert 0 <= choice.token_ids.index(client.closing) <= 8
        check_json(choice.message.content)


def test_reasoning_that_ends_before_its_budget_ends_where_the_model_says(client):
    extra = {"thinking_token_budget": 50, "ignore_eos": True}
    for reasoning, content, ids, _ in ask(client, n=2, max_tokens=20, logit_bias={str(client.closing): 100}, extra_body=extra, **JSON):
        assert ids[0] == client.closing and reasoning == ""
        check_json(content)


def test_no_budget_is_no_bound(client):
    never = {str(client.closing): -100}
    for fields in ({}, {"thinking_token_budget": None}, {"thinking_token_budget": -1}):
        [(reasoning, content, ids, finish)] = ask(client, max_tokens=60, logit_bias=never, extra_body={"ignore_eos": True, **fields})
        assert client.closing not in ids and content == "" and finish == "length"


def test_a_closed_block_leaves_the_rule_the_first_token(client):
    extra = {"chat_template_kwargs": {"enable_thinking": False}, "thinking_token_budget": 5}
    for reasoning, content, ids, finish in ask(client, n=2, extra_body=extra, **JSON):
        assert reasoning == "" and client.closing not in ids and finish == "stop"
        check_json(content)


@pytest.mark.parametrize("bias,thinks", [(100, True), (-100, False)])
def test_a_model_may_open_the_reasoning_where_the_prompt_leaves_it_open(client, bias, thinks):
    extra = {"chat_template_kwargs": {"free": True}, "thinking_token_budget": 6}
    for reasoning, content, ids, finish in ask(client, n=2, logit_bias={str(client.opening): bias}, extra_body=extra, **JSON):
        assert (ids[0] == client.opening) == thinks and (client.closing in ids) == thinks and bool(reasoning) == thinks
        assert finish == "stop" and (not thinks or ids.index(client.closing) >= 2)
        check_json(content)


def test_a_regex_of_letters_is_no_mark(client):
    text = "<think>b</think>"
    [(reasoning, content, _, _)] = ask(client, extra_body={"regex": re.escape(text), "thinking_token_budget": 3})
    assert content == text and reasoning


def test_a_required_call_of_harmony_comes_behind_a_spent_budget(quire, tmp_path):
    marks = {mark: True for mark in ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>", "<|call|>")}
    template = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant"
    tools = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
    s = serve(with_marks(tmp_path / "model", marks, template), "--reasoning-parser", "openai_gptoss", "--tool-call-parser", "openai")
    with openai.OpenAI(base_url=s.url + "/v1", api_key=KEY, max_retries=0) as other:
        for choice in ("required", {"type": "function", "function": {"name": "f"}}):
            answer = other.chat.completions.create(model="builtin", messages=USER, n=8, max_tokens=150, seed=5, tools=tools, tool_choice=choice,
                                                   extra_body={"thinking_token_budget": 6})
            for c in answer.choices:
                assert c.finish_reason in ("tool_calls", "stop") and len(c.message.tool_calls) == 1
                check_json(c.message.tool_calls[0].function.arguments)
            assert any(c.message.model_dump().get("reasoning") for c in answer.choices)
    assert s.stop() == 0


def test_a_rule_that_binds_the_reasoning_too_ends_within_a_budget(model):
    s = serve(model, "--reasoning-parser", "minimax_m2_append_think")
    with openai.OpenAI(base_url=s.url + "/v1", api_key=KEY, max_retries=0) as other:
        [(_, content, _, finish)] = ask(other, extra_body={"regex": "ab", "thinking_token_budget": 0})
    assert content == "<think>ab" and finish == "stop"
    assert s.stop() == 0


def test_the_closing_mark_may_be_a_stop_token(client):
    extra = {"thinking_token_budget": 3, "stop_token_ids": [client.closing]}
    [(_, content, ids, finish)] = ask(client, logit_bias={str(client.closing): -100}, extra_body=extra)
    assert finish == "stop" and len(ids) == 4 and ids[-1] == client.closing and content == ""


def test_a_budget_whose_mark_is_forbidden_is_refused(client):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, extra_body={"thinking_token_budget": 3, "allowed_token_ids": [client.opening, 50]})
    assert refused.value.param == "allowed_token_ids" and "reasoning" in refused.value.message
    with pytest.raises(openai.BadRequestError) as refused:  # the rule's JSON would never come
        ask(client, extra_body={"thinking_token_budget": 3, "stop_token_ids": [client.closing]}, **JSON)
    assert refused.value.param == "stop_token_ids" and "rule" in refused.value.message


def test_a_budget_without_reasoning_is_refused(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="builtin", prompt="x", extra_body={"thinking_token_budget": 4})
    assert refused.value.param == "thinking_token_budget" and "reasoning" in refused.value.message
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="builtin", messages=USER, extra_body={"thinking_token_budget": -2})


TAGS = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<tool_call>"], "at_least_one": True, "stop_after_first": True, "tags": [
    {"begin": "<tool_call>f", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</tool_call>"}]}}


def test_a_structural_tag_binds_behind_the_reasoning(client):
    bias = {str(client.closing + 1): 100}  # <tool_call>, wherever it may come
    extra = {"thinking_token_budget": 4, "response_format": TAGS}
    for reasoning, content, ids, finish in ask(client, n=2, logit_bias=bias, extra_body=extra):
        found = re.fullmatch(r"<tool_call>f(.*)</tool_call>", content, re.S)
        assert found and finish == "stop" and reasoning and client.closing + 1 in ids and client.closing + 2 in ids
        check_json(found[1])


@pytest.mark.parametrize("method", [{}, {"temperature": 0}, {"n": 2}])
def test_a_structural_tag_may_end_in_an_end_token(client, method):
    tag = {"type": "sequence", "elements": [{"type": "const_string", "value": "ab"}, {"type": "token", "token": "<|endoftext|>"}]}
    for _, content, ids, finish in ask(client, extra_body={"thinking_token_budget": 4, "response_format": {"type": "structural_tag", "format": tag}}, **method):
        assert content == "ab" and finish == "stop" and ids[-1] == 0


def test_an_end_token_in_the_midst_of_a_structural_tag_is_refused(client):
    end, text = {"type": "token", "token": "<|endoftext|>"}, {"type": "const_string", "value": "ab"}
    for tag, where in (({"type": "sequence", "elements": [end, text]}, "format.elements[0].token"), ({"type": "tag", "begin": "a<|endoftext|>", "content": text, "end": ""}, "format.begin")):
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="builtin", messages=USER, extra_body={"response_format": {"type": "structural_tag", "format": tag}})
        assert where in refused.value.message and "ends the answer" in refused.value.message
    # it ends nothing where it is ignored
    body = {"ignore_eos": True, "response_format": {"type": "structural_tag", "format": {"type": "sequence", "elements": [end, text]}}}
    client.chat.completions.create(model="builtin", messages=USER, max_tokens=40, extra_body=body)


@pytest.mark.parametrize("flags", [f for f in FLAGS if f != "plain"])
def test_the_answers_are_the_same_whatever_the_server_does(client, model, flags):
    requests = [dict(n=4, extra_body={"thinking_token_budget": 9}, **JSON), dict(n=3, temperature=0.7, max_tokens=60, extra_body={"thinking_token_budget": 20}),
                dict(temperature=0, max_tokens=80, extra_body={"thinking_token_budget": 30, "regex": "([a-z]{2,5} ){9}[a-z]+"}),
                dict(n=2, extra_body={"thinking_token_budget": 3, "response_format": TAGS})]
    s = serve(model, "--json-whitespace", "compact", *FLAGS[flags])
    with openai.OpenAI(base_url=s.url + "/v1", api_key=KEY, max_retries=0) as other:
        other.opening, other.closing = client.opening, client.closing
        for fields in requests:
            assert ask(other, **{**fields, "extra_body": dict(fields["extra_body"])}) == ask(client, **{**fields, "extra_body": dict(fields["extra_body"])})
    metrics = s.ask("GET", "/metrics")[2]
    assert flags != "tiny pool" or float(re.search(r"^vllm:num_preemptions_total\S* (\S+)$", metrics, re.M)[1]) > 0
    assert s.stop() == 0


def branch(server, verb, body, at, command):
    """Streams a chat, and once `at` tokens came commands the stream: (status, told, reasoning, content) of the answer in the end."""
    connection = http.client.HTTPConnection(*server.address, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
    answer, content, reasoning, n, n_prompt, told = connection.getresponse(), "", "", 0, 0, None
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        n_prompt = len(chunk.get("prompt_token_ids") or []) or n_prompt
        if "quire" in chunk:
            reasoning, content = chunk["quire"]["text"], ""
        for choice in chunk["choices"]:
            n += len(choice.get("token_ids") or [])
            content += choice["delta"].get("content") or ""
            reasoning += choice["delta"].get("reasoning") or ""
        if told is None and n >= at:
            fields = {**command, "position": n_prompt + command["position"]}
            told = server.ask("POST", f"/v1/streams/{chunk['id']}/{verb}", fields)
    connection.close()
    return told, reasoning, content


@pytest.mark.parametrize("verb,command", [("rollback", {"position": 5}), ("steer", {"position": 5, "text": "but then"}), ("fork", {"position": 9, "seed": 9})])
def test_branches_reason_within_the_budget_and_obey_behind_it(branching, verb, command):
    server, closing = branching
    body = {"messages": USER, "max_tokens": 900, "seed": 4, "stream": True, "return_token_ids": True, "thinking_token_budget": 60,
            "logit_bias": {str(closing): -100}, "regex": "([a-z]{3,8} ){120}end"}
    told, reasoning, content = branch(server, verb, body, 10, command)
    assert told[0] == 200, told[2]
    assert reasoning and re.fullmatch("([a-z]{3,8} ){120}end", content)
    if verb == "fork":
        choice = json.loads(told[2])["choices"][0]
        assert choice["message"]["reasoning"] and re.fullmatch("([a-z]{3,8} ){120}end", choice["message"]["content"])


@pytest.fixture(scope="module")
def branching(model):
    s = serve(model)
    yield s, model[1] + 1
    assert s.stop() == 0
