"""Ollama's API, by its own Python client and by hand: chats, generation, tools, thinking, formats, and what clients ask about the model."""
import json
import re
import urllib.error
import urllib.request

import ollama
import pytest

from conftest import KEY, Server

# The prompt ends in a closed block of reasoning unless thinking is off or left free: a regex then binds the answer from its first token.
TEMPLATE = ("{# <tool_call> <think> #}{% for t in tools or [] %}tool {{ t.function.name }}\n{% endfor %}"
            "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.reasoning_content or '' }}{% for c in m.tool_calls or [] %}"
            "{{ c.id }} {{ c.function.name }}({{ c.function.arguments }}){% endfor %}{{ m.tool_call_id or '' }}\n{% endfor %}assistant:"
            "{% if enable_thinking is undefined or not enable_thinking %}<think></think>{% endif %}")
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
USER = [{"role": "user", "content": "What is the weather in Rome?"}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
GREEDY = {"temperature": 0, "num_predict": 12}


@pytest.fixture(scope="module")
def server(quire, tmp_path_factory):
    path = tmp_path_factory.mktemp("ollama") / "template.jinja"
    path.write_text(TEMPLATE)
    s = Server("builtin", "--api-key", KEY, "--chat-template", str(path), "--served-model-name", "story", "other:7b")
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    return ollama.Client(server.url, headers={"Authorization": f"Bearer {KEY}"})


def post(server, path, body, key=KEY):
    """Status, headers and text of a request made by hand."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=120) as r:
            return r.status, r.headers, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read().decode()


def written(server, text, **fields):
    """The lines of a chat whose model writes this text."""
    body = {"model": "story", "messages": USER, "options": {"num_predict": 200, "temperature": 0},
            "structured_outputs": {"regex": re.escape(text)}, **fields}
    status, headers, answer = post(server, "/api/chat", body)
    assert status == 200, answer
    assert headers["Content-Type"] == ("application/json" if fields.get("stream") is False else "application/x-ndjson")
    return [json.loads(line) for line in answer.splitlines()]


def test_what_clients_ask_about_the_model(client):
    models = client.list().models
    assert [m.model for m in models] == ["story", "other:7b"] and models[0].digest != models[1].digest and models[0].size > 0
    assert client.ps().models[0].context_length == 2048
    for name in ("story", "story:latest", "other:7b"):
        shown = client.show(name)
        assert shown.modelinfo["general.architecture"] == "llama" and "completion" in shown.capabilities and "tools" in shown.capabilities
        assert shown.details.parameter_size == "3M"
    with pytest.raises(ollama.ResponseError) as e:
        client.show("nope")
    assert e.value.status_code == 404 and "'nope' not found" in e.value.error


def test_a_chat_whole_and_streamed(client):
    whole = client.chat("story:latest", USER, options=GREEDY)
    pieces = list(client.chat("story", USER, options=GREEDY, stream=True))
    assert whole.message.content and "".join(p.message.content for p in pieces) == whole.message.content
    assert [p.done for p in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1].message.content == ""
    for last in (whole, pieces[-1]):
        assert last.done_reason == "length" and last.eval_count == 12 and last.prompt_eval_count > 5
        assert 0 < last.prompt_eval_duration <= last.total_duration and last.eval_duration <= last.total_duration and last.load_duration == 0


def test_options_are_the_fields_of_a_chat(server, client):
    for options in ({"num_predict": 9, "seed": 3, "temperature": 1.5, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "repeat_penalty": 1.2,
                     "stop": ["zzz"]}, {"num_predict": 4, "presence_penalty": 1, "frequency_penalty": 1, "typical_p": 0.9, "mirostat": 2}):
        own = {"top_k": "top_k", "num_predict": "max_tokens", "repeat_penalty": "repetition_penalty"}
        fields = {own.get(k, k): v for k, v in options.items()}
        if "seed" not in fields:
            options, fields = {**options, "seed": 5}, {**fields, "seed": 5}
        status, _, answer = post(server, "/v1/chat/completions", {"messages": USER, **fields})
        assert status == 200, answer
        assert client.chat("story", USER, options=options).message.content == json.loads(answer)["choices"][0]["message"]["content"]
    status, headers, _ = post(server, "/api/chat", {"model": "story", "messages": USER, "stream": False,
                                                    "options": {"num_predict": 1, "num_ctx": 99, "num_gpu": 1, "wings": 2}, "feet": 2})
    assert status == 200 and headers["Warning"] == '199 quire "ignored: options.wings, feet"' or "options.wings" in headers["Warning"]


def test_generate_renders_a_chat_or_takes_the_prompt_as_it_is(server, client):
    chat = client.chat("story", [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}], options=GREEDY)
    assert client.generate("story", "Hello", system="Be brief.", options=GREEDY).response == chat.message.content
    status, _, answer = post(server, "/v1/completions", {"prompt": "Once upon a", "temperature": 0, "max_tokens": 12})
    assert status == 200
    raw = client.generate("story", "Once upon a", raw=True, options=GREEDY)
    assert raw.response == json.loads(answer)["choices"][0]["text"]
    pieces = list(client.generate("story", "Once upon a", raw=True, options=GREEDY, stream=True))
    assert "".join(p.response for p in pieces) == raw.response and pieces[-1].done_reason == "length"


def test_requests_of_ollamas_own_program_are_read(server):
    """Its Go client sends every text, empty or not, and null for absent options."""
    whole = {"model": "story", "stream": False, "options": {"temperature": 0, "num_predict": 4}}
    asked = {"prompt": "Once", "suffix": "", "system": "", "template": "", "context": []}
    status, _, text = post(server, "/api/generate", whole | asked)
    assert status == 200 and json.loads(text)["response"] == json.loads(post(server, "/api/generate", whole | {"prompt": "Once"})[2])["response"]
    assert post(server, "/api/show", {"model": "story", "system": "", "template": "", "verbose": False, "options": None, "name": ""})[0] == 200
    chat = {"model": "story", "messages": [{"role": "user", "content": "a", "images": None}], "options": None, "tools": None, "keep_alive": None}
    assert post(server, "/api/chat", chat | {"stream": False, "options": {"num_predict": 1}})[0] == 200


def test_a_request_without_a_prompt_loads_or_unloads(client):
    for answer in (client.generate("story"), client.chat("story", [])):
        assert answer.done and answer.done_reason == "load"
    assert client.generate("story", keep_alive=0).done_reason == "unload"
    with pytest.raises(ollama.ResponseError) as e:
        client.generate("nope")
    assert e.value.status_code == 404


def test_tools_are_called_and_answered(server, client):
    for stream in (True, False):
        lines = written(server, CALL + CALL, tools=[TOOL], stream=stream)
        calls = [c for line in lines for c in line["message"].get("tool_calls", [])]
        assert [c["function"] for c in calls] == [{"name": "get_weather", "index": i, "arguments": {"city": "Rome"}} for i in (0, 1)]
        assert lines[-1]["done_reason"] == "stop" and "".join(line["message"]["content"] for line in lines).strip() == ""
    history = [*USER, {"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "a", "arguments": {"x": 1}}}, {"function": {"name": "b", "arguments": {}}}]},
        {"role": "tool", "content": "two", "tool_name": "b"}, {"role": "tool", "content": "one", "tool_name": "a"}]
    same = [*USER, {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "id": "00000000", "function": {"name": "a", "arguments": '{"x": 1}'}},
        {"type": "function", "id": "00000001", "function": {"name": "b", "arguments": "{}"}}]},
        {"role": "tool", "content": "two", "tool_call_id": "00000001"}, {"role": "tool", "content": "one", "tool_call_id": "00000000"}]
    status, _, answer = post(server, "/v1/chat/completions", {"messages": same, "temperature": 0, "max_tokens": 12})
    assert status == 200
    mine = client.chat("story", history, options=GREEDY)
    assert mine.message.content == json.loads(answer)["choices"][0]["message"]["content"]
    assert mine.prompt_eval_count == json.loads(answer)["usage"]["prompt_tokens"]


def test_thinking_is_apart_from_the_answer(server):
    for stream in (True, False):
        lines = written(server, "Rome.", think=False, stream=stream)
        assert "".join(line["message"]["content"] for line in lines) == "Rome."
        assert not any("thinking" in line["message"] for line in lines)
    status, _, answer = post(server, "/api/chat", {"model": "story", "messages": USER, "think": True, "stream": False, "options": GREEDY})
    assert status == 200 and json.loads(answer)["done"]
    for think, ok in (("high", True), ({}, False), (7, False)):
        status, _, answer = post(server, "/api/chat", {"model": "story", "messages": USER, "think": think, "options": GREEDY})
        assert (status == 200) == ok, answer


def test_an_answer_obeys_its_format(client):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    options = {"temperature": 0, "num_predict": 80}
    assert set(json.loads(client.chat("story", USER, format=schema, options=options).message.content)) == {"a"}
    assert set(json.loads(client.generate("story", "x", format=schema, options=options).response)) == {"a"}
    assert client.chat("story", USER, format="json", options=options).message.content.lstrip()[0] == "{"


BAD = [
    ({"messages": "x"}, "messages"), ({"messages": [1]}, "messages[0]"), ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"), ({"messages": [{"role": "user", "content": "x", "images": ["aa"]}]}, "messages[0].images"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls"), ({"messages": USER, "options": {"top_p": 7}}, "top_p"),
    ({"messages": USER, "options": []}, "options"), ({"messages": USER, "format": 7}, "format"), ({"messages": USER, "tools": [{}]}, "tools"),
    ({"messages": USER, "template": "x"}, "template"), ({"messages": USER, "logprobs": True}, "logprobs"), ({"messages": USER, "stream": "x"}, "stream"),
    ({"messages": USER, "options": {"stop": [7]}}, "stop"),
]


@pytest.mark.parametrize("body,names", BAD, ids=[json.dumps(b)[:60] for b, _ in BAD])
def test_bad_fields_are_named_in_ollamas_form(server, body, names):
    path = "/api/generate" if "template" in body else "/api/chat"
    body = {"prompt": "x", "template": body["template"]} if "template" in body else body
    status, _, answer = post(server, path, {"model": "story", **body})
    assert status == 400 and list(json.loads(answer)) == ["error"] and names in json.loads(answer)["error"], answer


def test_hostile_bodies_and_keys(server):
    for body in (b"", b"[]", b"{", b"\xff", b'{"messages":' + b"[" * 5000, b'{"model":"story","messages":[{"role":"user","content":"\\ud800"}]}'):
        for path in ("/api/chat", "/api/generate", "/api/show"):
            status, _, answer = post(server, path, body)
            assert 400 <= status < 500 and list(json.loads(answer)) == ["error"], (path, body[:20], answer)
    for path in ("/api/chat", "/api/show"):
        assert post(server, path, {"model": "story"}, key="wrong")[0] == 401
    assert post(server, "/api/chat", {"model": "nope", "messages": USER})[0] == 404
    status, _, refused = post(server, "/api/pull", {"model": "story"})
    assert status == 404 and "managing models is not served here" in json.loads(refused)["error"]


@pytest.mark.parametrize("path, body", [("/api/generate", {"model": "story", "prompt": "a", "stream": False, "options": {"num_predict": 1}}),
                                        ("/api/show", {"model": "story"}), ("/completion", {"prompt": "a", "n_predict": 1}),
                                        ("/tokenize", {"content": "a"})])
def test_a_body_without_the_type_of_json_is_read_but_not_from_a_page(server, path, body):
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert server.ask("POST", path, body, headers=form)[0] == 200
    assert server.ask("POST", path, body, headers={"content-type": ""})[0] == 200
    for page in ({"origin": "http://elsewhere.example"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "none"}):
        assert server.ask("POST", path, body, headers={**form, **page})[0] == 400
    assert server.ask("POST", "/v1/completions", {"prompt": "a"}, headers=form)[0] == 400


@pytest.mark.parametrize("path, body", [("/api/chat", {"messages": USER}), ("/api/generate", {"prompt": "a"})])
def test_a_schema_that_cannot_be_enforced_is_refused_by_the_name_format(server, path, body):
    status, _, text = server.ask("POST", path, {"model": "story", "format": {"type": "foo"}, **body})
    assert status == 400 and json.loads(text)["error"].startswith("format: "), text
