"""Answers that come back: the conversation goes on from the ids that were generated, not from those of the text tokenised anew."""
import json
import re
import shutil
import urllib.request

import pytest

from conftest import KEY, Server

TEMPLATE = ("{# <tool_call> #}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}"
            "{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n"
            "</tool_call>{% endfor %}\n{% endfor %}assistant: ")
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}}
# Each answer begins after an empty thought, and may have one of its own.
THINKER = (TEMPLATE.replace("{# <tool_call> #}", "{# <tool_call> <think> #}") + "<think></think>").replace("{{ m.role }}: ", (
    "{{ m.role }}: {% if m.role == 'assistant' %}<think></think>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{% endif %}"))
TEXT = "[a-z][a-z ]{20,60}[a-z]"
THOUGHT = f"<think>[a-z][a-z ]{{8,20}}[a-z]</think>{TEXT}"
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


# ---- answers without calls ----

@pytest.fixture(scope="module")
def thinker(quire, tmp_path_factory):
    """The small built-in model with room for a long conversation, whose template shows all reasoning."""
    path = tmp_path_factory.mktemp("turns") / "model"
    shutil.copytree("models/builtin-small-hf", path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 65536}))
    (path / "chat_template.jinja").write_text(THINKER)
    s = Server(str(path), "--api-key", KEY, "--api-key", OTHER_KEY, "--served-model-name", "builtin", "--enable-auto-tool-choice")
    yield s
    assert s.stop() == 0


def respond(server, items, seed, regex, key=KEY, **fields):
    body = {"input": items, "temperature": 1.6, "seed": seed, "max_output_tokens": 300, "structured_outputs": {"regex": regex}, **fields}
    answer = post(server, "/v1/responses", body, key)
    assert answer["status"] == "completed", answer
    return answer


def of_usage(answer):
    usage = answer["usage"]
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"]


def changed(before, after):
    return {k: after[k] - before[k] for k in after}


def test_an_items_id_names_the_answer(thinker):
    before = counts(thinker)
    for regex, kinds in ((TEXT, ["message"]), (THOUGHT, ["reasoning", "message"])):
        first = respond(thinker, "Begin.", 1, regex, store=False)
        assert [i["type"] for i in first["output"]] == kinds
        n_in, _, n_out = of_usage(first)
        talk = [{"role": "user", "content": "Begin."}, *first["output"], {"role": "user", "content": "More."}]
        again = respond(thinker, talk, 2, TEXT, store=False)
        assert of_usage(again)[1] >= n_in + n_out - 2  # all but the end of the answer, which is no token of it, and the token before that
    assert changed(before, counts(thinker)) == {"reused": 2, "gone": 0, "differs": 0}
    other = respond(thinker, talk, 2, TEXT, key=OTHER_KEY, store=False)  # another tenant's: the text decides
    assert of_usage(other)[1] == 0
    talk[2]["content"][0]["text"] = "Other words."
    respond(thinker, talk, 2, TEXT, store=False)
    assert changed(before, counts(thinker)) == {"reused": 2, "gone": 1, "differs": 1}
    # ids of other servers, and those of a client's own items that are kept, name nothing
    own = [{"role": "user", "content": "Begin."}, {"type": "message", "id": "msg_68af0123", "role": "assistant", "content": "Yes."}, {"role": "assistant", "content": "So."}]
    kept = respond(thinker, own, 3, TEXT)
    respond(thinker, "More.", 3, TEXT, previous_response_id=kept["id"])
    assert changed(before, counts(thinker)) == {"reused": 3, "gone": 1, "differs": 1}


def nameless(item):
    """An item without the ids that name its answer."""
    return {k: v[:4] if k == "call_id" else v for k, v in item.items() if k != "id"}


def test_a_coding_assistant_of_responses_computes_new_tokens_only(thinker):
    """30 turns of calls, texts and reasoning with long results, some on the response before by its id, some with all items sent back."""
    tool = {"type": "function", **TOOL["function"]}
    before, items, news, previous = counts(thinker), [], [{"role": "user", "content": "Here is a file, line by line. " * 30}], None
    asked = hits = prefix = 0
    for turn in range(TURNS):
        fields = {"tools": [tool], "tool_choice": "auto"}
        if turn % 4 < 2 and previous is not None:
            sent, fields["previous_response_id"] = news, previous["id"]
        else:
            sent = [*items, *news]
        r = respond(thinker, sent, turn, (CALL, TEXT, THOUGHT)[turn % 3], **fields)
        assert [i["type"] for i in r["output"]] == (["function_call"], ["message"], ["reasoning", "message"])[turn % 3]
        n_in, cached, n_out = of_usage(r)
        if turn > 0:
            assert cached >= 0.99 * prefix and cached >= prefix - 2, (turn, cached, prefix)
            hits, asked = hits + cached, asked + prefix
        prefix = n_in + n_out
        items += [*news, *r["output"]]
        lines = "\n".join(f"int value_{turn}_{i} = {i * 7919 % 1000}; /* the value of {i} */" for i in range(44))
        news = ([{"type": "function_call_output", "call_id": r["output"][0]["call_id"], "output": lines}] if turn % 3 == 0
                else [{"role": "user", "content": lines}])
        previous = r
        if turn == 5:  # the same without ids: the text decides, and leaves the cache early
            mark = counts(thinker)
            plain = respond(thinker, [*map(nameless, items), *news], 1, TEXT)
            assert of_usage(plain)[1] < prefix - 100, "this model's answers were all as the tokenizer cuts them: the test shows nothing"
            assert counts(thinker) == mark
    assert prefix > 40000 and hits / asked >= 0.99
    assert changed(before, counts(thinker)) == {"reused": TURNS * (TURNS - 1) // 2, "gone": 0, "differs": 0}


def test_a_thinking_blocks_signature_names_the_answer(thinker):
    before = counts(thinker)
    talk = [{"role": "user", "content": "Begin."}]
    body = {"model": "builtin", "max_tokens": 2000, "temperature": 1, "thinking": {"type": "enabled", "budget_tokens": 1024}, "explain": True}
    prefix = 0
    for turn in range(3):
        answer = post(thinker, "/v1/messages", {**body, "messages": talk, "seed": turn, "regex": THOUGHT})
        assert [b["type"] for b in answer["content"]] == ["thinking", "text"], answer
        usage = answer["usage"]
        assert usage["cache_read_input_tokens"] >= prefix - 2
        assert answer["explain"]["choices"][0]["recalled_turns"] == {"reused": turn, "gone": 0, "differs": 0}
        prefix = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["output_tokens"]
        talk += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": "More."}]
    assert changed(before, counts(thinker)) == {"reused": 3, "gone": 0, "differs": 0}


def test_a_chat_may_name_its_answers(thinker):
    """By a member id of the assistant's messages; the first such answer is kept, and what came before a client showed that it sends ids is not."""
    talk, told, prefix = [{"role": "user", "content": "Begin."}], [], []
    for turn in range(4):
        answer = post(thinker, "/v1/chat/completions", {"messages": talk, "temperature": 1.6, "seed": turn, "max_tokens": 200, "return_token_ids": True,
                                                        "structured_outputs": {"regex": TEXT}, "explain": True})
        told.append(answer["explain"]["choices"][0]["recalled_turns"])
        if turn > 1:
            assert answer["prompt_token_ids"][:len(prefix)] == prefix
        prefix = answer["prompt_token_ids"] + generated(answer["choices"][0]["token_ids"])
        talk += [{"role": "assistant", "id": answer["id"], "content": answer["choices"][0]["message"]["content"]}, {"role": "user", "content": "More."}]
    assert told == [{"reused": 0, "gone": 0, "differs": 0}] + [{"reused": n, "gone": 1, "differs": 0} for n in range(3)]


def test_calls_without_ids_name_nothing(thinker):
    before = counts(thinker)
    talk = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": "a"}}}]},
            {"role": "tool", "content": "ok", "tool_name": "f"}]
    post(thinker, "/api/chat", {"model": "builtin", "messages": talk, "stream": False, "options": {"num_predict": 4}})
    nameless = [talk[0], {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "More."}]
    post(thinker, "/v1/chat/completions", {"messages": nameless, "max_tokens": 4})
    assert counts(thinker) == before
