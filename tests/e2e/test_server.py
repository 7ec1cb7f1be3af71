"""The server as its clients see it: the openai package, many at once, clients that leave, a stop."""
import concurrent.futures
import json
import pathlib
import signal
import socket
import subprocess
import time

import openai
import pytest

from conftest import KEY, QUIRE, Server

STORY = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0)


def model_of(client):
    return client.models.list().data[0].id


# ---- the openai client ----

def test_the_client_finds_the_model(client):
    name = model_of(client)
    assert client.models.retrieve(name).id == name
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")


def test_the_client_streams_a_completion(client):
    name = model_of(client)
    whole = client.completions.create(model=name, **STORY)
    chunks = list(client.completions.create(model=name, stream=True, stream_options={"include_usage": True}, **STORY))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text != ""
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [whole.choices[0].finish_reason]
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 24
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens > 0


def test_the_client_streams_a_chat(golden_server):
    client = openai.OpenAI(base_url=golden_server.url + "/v1", api_key=KEY, max_retries=0)
    question = {"model": "tiny", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**question)
    chunks = list(client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **question))
    assert chunks[0].choices[0].delta.role == whole.choices[0].message.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content != ""
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_a_schema_is_checked_without_generating(server):
    schema = {"type": "object", "title": "t", "properties": {"a": {"type": "string", "pattern": "^[a-z]+$"}, "b": {"format": "regex"}}}
    status, _, body = server.ask("POST", "/v1/schemas/check", {"schema": schema})
    report = json.loads(body)
    found = {(k["path"], k["keyword"]): k["status"] for k in report["keywords"]}
    assert status == 200 and not report["accepted"] and '"/properties/b"' in report["reason"]
    assert found == {("", "type"): "enforced", ("", "title"): "annotation", ("", "properties"): "enforced", ("/properties/a", "type"): "enforced",
                     ("/properties/a", "pattern"): "enforced", ("/properties/b", "format"): "refused"}
    forms = [{"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 1}}}}, {"structured_outputs": {"choice": ["a"]}},
             {"guided_json": {"const": 1}}, {"regex": "a+"}, {"grammar": 'root ::= "a"'}]
    assert all(json.loads(server.ask("POST", "/v1/schemas/check", form)[2])["accepted"] for form in forms)
    assert server.ask("POST", "/v1/schemas/check", {"schema": {}}, key="wrong")[0] == 401
    for wrong in ({}, {"prompt": "x"}, {"schema": 5}, {"structured_outputs": {}}):
        assert server.ask("POST", "/v1/schemas/check", wrong)[0] == 400


LISTED = {"type": "object", "properties": {"a": {"const": 1}}}


@pytest.mark.parametrize("rule", [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": LISTED}}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": LISTED, "strict": True}}},
    {"guided_json": LISTED}, {"json_schema": json.dumps(LISTED)}, {"structured_outputs": {"json": LISTED}},
    {"response_format": {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": LISTED}}},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": LISTED}}], "tool_choice": "required", "parallel_tool_calls": False},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": LISTED}}], "tool_choice": {"type": "function", "function": {"name": "f"}}},
])
def test_objects_that_list_members_take_no_others_unless_the_request_says_so(server, rule):
    ask = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 60, "temperature": 1.5, "seed": 4, "n": 8, "json_whitespace": "compact"} | rule

    def answers(**more):
        status, _, body = server.ask("POST", "/v1/chat/completions", ask | more)
        assert status == 200, body
        messages = [choice["message"] for choice in json.loads(body)["choices"]]
        return {m["tool_calls"][0]["function"]["arguments"] if "tools" in rule else m["content"] for m in messages}

    assert {a.replace(" ", "") for a in answers()} <= {"{}", '{"a":1}'}
    assert not {a.replace(" ", "") for a in answers(json_additional_properties="schema")} <= {"{}", '{"a":1}'}


def test_the_report_on_a_schema_says_what_becomes_of_members_that_it_does_not_list(server):
    def said(body):
        return json.loads(server.ask("POST", "/v1/schemas/check", body)[2])["additional_properties"]

    assert said({"schema": LISTED}) == said({"structured_outputs": {"json": LISTED, "disable_additional_properties": True}}) == "closed"
    assert said({"schema": LISTED, "json_additional_properties": "schema"}) == said({"structured_outputs": {"json": LISTED, "additional_properties": "schema"}}) == "schema"
    assert said({"regex": "a"}) is None


def test_the_client_understands_refusals(server, client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=model_of(client), prompt="x", top_p=1.5)
    assert refused.value.param == "top_p" and refused.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError):  # also when a stream was asked for: the status comes before it
        client.completions.create(model=model_of(client), prompt=[1] * 10000, stream=True)
    stranger = openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_a_model_without_a_template_chats_in_plain_turns(server):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What did the prince say?"}]
    plain = "system:\nBe brief.\n\nuser:\nWhat did the prince say?\n\nassistant:\n"
    body = {"max_tokens": 24, "temperature": 0, "return_token_ids": True}
    status, headers, text = server.ask("POST", "/v1/chat/completions", {"messages": messages, **body})
    answer = json.loads(text)
    assert status == 200 and headers["x-quire-chat-template"] == "plain"
    completed = json.loads(server.ask("POST", "/v1/completions", {"prompt": plain, "stop": ["\nuser:"], **body})[2])
    assert answer["prompt_token_ids"] == completed["choices"][0]["prompt_token_ids"]
    assert answer["choices"][0]["message"]["content"] == completed["choices"][0]["text"] != ""
    status, headers, text = server.ask("POST", "/v1/chat/completions", {"messages": messages, "stream": True, **body})
    assert status == 200 and headers["x-quire-chat-template"] == "plain"
    chunks = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]) == answer["choices"][0]["message"]["content"]
    assert "chats: plain turns" in "".join(server.said)
    assert "x-quire-chat-template" not in server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})[1]


def test_the_users_next_turn_ends_an_answer_of_plain_turns(server):
    """The model is led to write a turn of the user: what stands before is the answer."""
    talk = [{"role": r, "content": c} for r, c in [("user", "Say a."), ("assistant", "a"), ("user", "Say a."), ("assistant", "a")] * 6]
    user = json.loads(server.ask("POST", "/v1/completions", {"prompt": "x\n\nuser:\n", "max_tokens": 1, "return_token_ids": True})[2])["choices"][0]["prompt_token_ids"]
    x = json.loads(server.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "return_token_ids": True})[2])["choices"][0]["prompt_token_ids"]
    assert user[:len(x)] == x
    turn = sorted(set(user[len(x):]))  # only these can be written, so that the turn is sure to come
    body = {"messages": talk + [{"role": "user", "content": "Say a."}], "temperature": 1, "max_tokens": 200, "allowed_token_ids": turn}
    n_ended = 0
    for seed in range(4):
        choice = json.loads(server.ask("POST", "/v1/chat/completions", {**body, "seed": seed})[2])["choices"][0]
        free = json.loads(server.ask("POST", "/v1/chat/completions", {**body, "seed": seed, "ignore_eos": True})[2])["choices"][0]
        whole, shown = free["message"]["content"], choice["message"]["content"]
        ends = [whole.index(s) for s in ("\n\nuser:", "\nuser:") if s in whole]
        assert shown == (whole[:min(ends)] if ends else whole)
        n_ended += bool(ends)
        assert choice["finish_reason"] == ("stop" if ends else "length") and free["finish_reason"] == "length"
    assert n_ended > 0


# ---- many at once ----

def test_64_clients_get_the_bytes_that_one_gets(server):
    prompts = [f"The {word} of the story" for word in ("beginning", "end", "middle", "hero", "king", "queen", "war", "peace")]
    def ask(i):
        body = {"prompt": prompts[i % 8], "max_tokens": 16 + i % 8, "temperature": 0.8 if i % 2 else 0, "seed": i % 8, "stream": i % 3 == 0}
        status, _, text = server.ask("POST", "/v1/completions", body)
        assert status == 200, text
        if not body["stream"]:
            return json.loads(text)["choices"][0]["text"]
        chunks = [json.loads(e.removeprefix("data: ")) for e in text.split("\n\n") if e and e != "data: [DONE]"]
        return "".join(c["choices"][0]["text"] for c in chunks)
    alone = [ask(i) for i in range(64)]
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        assert list(pool.map(ask, range(64))) == alone


def test_pipelined_requests_are_answered_in_order(server):
    body = json.dumps({"prompt": "a", "max_tokens": 3}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(server.address, 60) as s:
        s.sendall((head + "\r\n").encode() + body + b"GET /version HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: s.recv(65536), b""))
    assert 0 < answer.index(b"text_completion") < answer.index(b'{"version"')


# ---- clients that leave ----

def start_stream(server, stream, max_tokens=500):
    body = json.dumps({"prompt": "a", "max_tokens": max_tokens, "ignore_eos": True, "stream": stream}).encode()
    s = socket.create_connection(server.address, 60)
    s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
              f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return s


def wait_until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


OPEN = {"type": "object", "additionalProperties": {"const": 1}, "maxProperties": 7}


@pytest.mark.parametrize("rule", [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": OPEN}}},
    {"structured_outputs": {"json": OPEN | {"minProperties": 7}}},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": OPEN}}], "tool_choice": "required", "parallel_tool_calls": False},
])
def test_no_name_comes_twice_in_an_open_object_of_a_model_that_repeats_itself(server, rule):
    texts = '",\\u0'
    ids = [json.loads(subprocess.run([QUIRE, "tokenize", "builtin", "--ids", "-p", text], capture_output=True, text=True, check=True).stdout)[-1]
           for text in texts]
    for weights in ((100, 90, 60, 80, 70), (100, 60, 90, 80, 70)):  # names as short as they may be, of commas, or of escapes
        ask = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 300, "temperature": 0, "logit_bias": dict(zip(ids, weights)), "json_whitespace": "compact"} | rule
        status, _, body = server.ask("POST", "/v1/chat/completions", ask)
        assert status == 200, body
        [choice] = json.loads(body)["choices"]
        text = choice["message"]["tool_calls"][0]["function"]["arguments"] if "tools" in rule else choice["message"]["content"]
        names = []
        json.loads(text, object_pairs_hook=lambda pairs: names.extend(name for name, _ in pairs))
        assert len(names) == len(set(names)) == 7, text


@pytest.mark.parametrize("stream", [True, False])
def test_pages_of_clients_that_leave_come_back_within_two_steps(quire, stream):
    s = Server("builtin", "--api-key", KEY, "--threads", "1")
    try:
        for _ in range(20):
            stayer = start_stream(s, True, 2000)  # keeps the engine stepping
            leavers = [start_stream(s, stream, 2000) for _ in range(8)]
            wait_until(lambda: s.metric("quire_pages_held") >= 9)
            before = s.metric("quire_http_disconnects_total")
            for connection in leavers:
                connection.close()
            wait_until(lambda: s.metric("quire_http_disconnects_total") >= before + 8 or s.metric("quire_pages_held") == 0)
            if s.metric("quire_http_disconnects_total") >= before + 8:
                break  # else some had their answer before they left
        else:
            pytest.fail("all were answered before they left")
        first = s.metric("quire_steps_total")
        # Each look at /metrics is one moment: held pages are back to those of the one that stayed before two more steps have ended.
        while True:
            text = s.ask("GET", "/metrics")[2]
            values = dict(line.split(" ") for line in text.split("\n") if line.startswith("quire_"))
            if running(text) <= 1:
                break
            assert float(values["quire_steps_total"]) <= first + 2, "more than two steps after they left their pages are held"
        stayer.close()
        wait_until(lambda: s.metric("quire_pages_held") == 0)
    finally:
        assert s.stop() == 0


def running(metrics):
    return next(float(line.split(" ")[1]) for line in metrics.split("\n") if line.startswith("vllm:num_requests_running{"))


# ---- the program ----

def test_a_signal_ends_it_after_what_runs(quire):
    s = Server("builtin", "--api-key", KEY)
    connection = start_stream(s, True)
    connection.recv(1)
    s.process.send_signal(signal.SIGINT)
    answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.rstrip().endswith(b"0") and b"data: [DONE]" in answer
    assert s.process.wait(300) == 0


def test_a_taken_port_is_refused_with_advice(quire, server):
    with pytest.raises(RuntimeError, match="--port"):
        Server("builtin", "--port", str(server.address[1]))


def test_it_idles_without_the_processor(server):
    """Less than a thousandth of one processor, all threads together."""
    def cpu_seconds():
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    for _ in range(10):  # until what other tests began is over
        before = cpu_seconds()
        time.sleep(4.0)
        used = cpu_seconds() - before
        if used < 0.004:
            break
    assert used < 0.004


# ---- hostile clients ----

@pytest.mark.parametrize("raw, status", [
    (b"HELLO\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 100000 + b"\r\n\r\n", 431),
    (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n", 413),
])
def test_malformed_requests_get_a_status(server, raw, status):
    with socket.create_connection(server.address, 30) as s:
        s.sendall(raw)
        answer = b"".join(iter(lambda: s.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
