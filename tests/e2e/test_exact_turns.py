"""Answers with tool calls that come back: the conversation goes on from the ids that were generated, not from those of the text tokenised anew."""
import json
import re
import urllib.request

import pytest

from conftest import KEY, Server

TEMPLATE = ("{# <tool_call> #}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}"
            "{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n"
            "</tool_call>{% endfor %}\n{% endfor %}assistant: ")
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}}
CALL = r'<tool_call>\n\{"name": "f", "arguments": \{"x": "[a-z ]{4,8}"\}\}\n</tool_call>'
TURNS = 30
OTHER_KEY = "k-other"


@pytest.fixture(scope="module")
def server(quire, tmp_path_factory):
    path = tmp_path_factory.mktemp("turns") / "template.jinja"
    path.write_text(TEMPLATE)
    s = Server("builtin", "--api-key", KEY, "--api-key", OTHER_KEY, "--chat-template", str(path), "--enable-auto-tool-choice", "--operator-key", "root")
    yield s
    assert s.stop() == 0


def post(server, path, body, key=KEY):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=120) as r:
        return json.load(r)


def counts(server):
    with urllib.request.urlopen(server.url + "/metrics", timeout=120) as r:
        return {k: int(v) for k, v in re.findall(r'quire_recalled_turns_total\{result="(\w+)"\} (\d+)', r.read().decode())}


def ask(server, messages, seed, key=KEY, **fields):
    body = {"messages": messages, "tools": [TOOL], "temperature": 1.6, "seed": seed, "max_tokens": 200, "return_token_ids": True,
            "structured_outputs": {"regex": CALL}, **fields}
    answer = post(server, "/v1/chat/completions", body, key)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls", choice
    return answer, choice["message"], choice["token_ids"]


def generated(ids):
    """The ids without the end-of-sequence token, 0 or 1."""
    assert ids[-1] in (0, 1), ids
    return ids[:-1]


def sent_back(message, **changes):
    call = message["tool_calls"][0]
    return {"role": "assistant", "content": "", "tool_calls": [{**call, **changes}]}




def test_a_tool_session_computes_new_tokens_only(server):
    before = counts(server)
    messages, differs, hits, prompts = [{"role": "user", "content": "Go on."}], 0, 0, 0
    prefix = []
    for turn in range(TURNS):
        answer, message, ids = ask(server, messages, seed=turn)
        prompt = answer["prompt_token_ids"]
        assert prompt[:len(prefix)] == prefix  # the last turn's prompt and what it generated, id for id
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        if turn > 0:
            # the last generated token was never computed; pages are shared to the token
            assert cached >= len(prefix) - 1, (turn, cached, len(prefix))
            hits, prompts = hits + cached, prompts + len(prefix)
        prefix = prompt + generated(ids)
        messages += [sent_back(message), {"role": "tool", "content": "ok", "tool_call_id": message["tool_calls"][0]["id"]}]
        # without the id the text is tokenised: not always as it was generated
        plain = [{**m, "tool_calls": [{**m["tool_calls"][0], "id": "aaaaaaaaa"}]} if m.get("tool_calls") else m for m in messages]
        if turn == TURNS - 1:
            other = ask(server, plain, seed=1)[0]
            differs = other["prompt_token_ids"][:len(prefix)] != prefix
    after = counts(server)
    assert hits / prompts >= 0.99
    assert differs, "this model's answers were all as the tokenizer cuts them: the test shows nothing"
    assert after["reused"] - before["reused"] == TURNS * (TURNS - 1) // 2
    assert after["gone"] - before["gone"] == TURNS and after["differs"] == before["differs"]


def test_ids_of_others_and_of_other_texts_do_not_count(server):
    messages = [{"role": "user", "content": "Tell me."}]
    answer, message, ids = ask(server, messages, seed=3)
    back = [*messages, sent_back(message), {"role": "tool", "content": "ok", "tool_call_id": "x" * 9}]
    mine = ask(server, back, seed=4)[0]["prompt_token_ids"]
    prefix = answer["prompt_token_ids"] + generated(ids)
    assert mine[:len(prefix)] == prefix
    before = counts(server)
    theirs = ask(server, back, seed=4, key=OTHER_KEY)[0]["prompt_token_ids"]  # another tenant's: the text decides
    nameless = ask(server, [*messages, sent_back(message, id="zzzzzzzzz"), back[-1]], seed=4)[0]["prompt_token_ids"]
    assert theirs == nameless
    changed = sent_back(message, function={"name": "f", "arguments": json.dumps({"x": "another text"})})
    ask(server, [*messages, changed, back[-1]], seed=4)
    ask(server, [{"role": "user", "content": "Tell them."}, *back[1:]], seed=4)  # after another beginning
    after = counts(server)
    assert after["gone"] - before["gone"] == 2 and after["differs"] - before["differs"] == 2 and after["reused"] == before["reused"]
    for n in (8, 0):  # ids too short to be one
        ask(server, [*messages, sent_back(message, id="z" * n), back[-1]], seed=4)
    assert counts(server) == after


def test_the_ids_of_streamed_answers_are_kept_too(server):
    messages = [{"role": "user", "content": "Stream."}]
    body = {"messages": messages, "tools": [TOOL], "temperature": 1.6, "seed": 9, "max_tokens": 200, "return_token_ids": True, "stream": True,
            "structured_outputs": {"regex": CALL}}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=120) as r:
        chunks = [json.loads(line[6:]) for line in r.read().decode().splitlines() if line.startswith("data: {")]
    ids = [i for c in chunks for i in (c["choices"][0].get("token_ids") or [])] if chunks else []
    prompt = next(c["prompt_token_ids"] for c in chunks if c.get("prompt_token_ids"))
    pieces = [t for c in chunks for t in (c["choices"][0]["delta"].get("tool_calls") or [])]
    call = {"id": pieces[0]["id"], "type": "function", "function": {"name": "f", "arguments": "".join(p["function"].get("arguments") or "" for p in pieces)}}
    back = [*messages, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "ok", "tool_call_id": call["id"]}]
    again = ask(server, back, seed=4)[0]["prompt_token_ids"]
    prefix = prompt + generated(ids)
    assert again[:len(prefix)] == prefix
