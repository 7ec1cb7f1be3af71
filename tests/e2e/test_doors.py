"""Who may come in: keys and their reloading, names of the machine, web pages elsewhere, and what each sees of the pool."""
import http.client
import json
import signal
import threading
import time

import pytest

from conftest import Server, KEY

LONG = {"model": "builtin", "prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True}


def wait_for(test, seconds=300):
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end
        time.sleep(0.02)


def models(server, key):
    return server.ask("GET", "/v1/models", key=key)[0]


def test_sighup_reloads_the_key_file_and_a_bad_one_changes_nothing(quire, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice:a1\n")
    server = Server("builtin", "--api-key-file", str(keys), "--api-key", KEY)
    try:
        assert [models(server, k) for k in ("a1", "b1", KEY)] == [200, 401, 200]
        keys.write_text("alice:a1\nno colon\n")
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: any("line 2" in line and "keys are unchanged" in line for line in server.said))
        assert [models(server, k) for k in ("a1", "b1", KEY)] == [200, 401, 200]
        keys.write_text("alice:a2\nbob:b1\n")
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: models(server, "b1") == 200)
        assert [models(server, k) for k in ("a1", "a2", KEY)] == [401, 200, 200]
        server.process.send_signal(signal.SIGUSR1)
        keys.unlink()
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: sum("keys are unchanged" in line for line in server.said) == 2)
        assert models(server, "b1") == 200
        assert server.stop() == 0
    finally:
        server.stop()


def test_without_a_key_file_sighup_does_nothing(quire):
    server = Server("builtin")
    try:
        for number in (signal.SIGHUP, signal.SIGUSR1):
            server.process.send_signal(number)
        wait_for(lambda: any("SIGHUP" in line for line in server.said))
        assert server.ask("GET", "/health")[0] == 200
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("flags, warns", [((), False), (("--host", "0.0.0.0"), True), (("--host", "0.0.0.0", "--api-key", KEY), False)])
def test_a_server_open_to_others_without_keys_warns(quire, flags, warns):
    server = Server("builtin", *flags)
    server.address = ("127.0.0.1", server.address[1])
    try:
        said = "".join(server.said)
        assert ("--api-key" in said) == warns, said
        assert ("--host" in said) == warns, said
    finally:
        server.stop()


def test_no_web_page_may_ask_by_default(server):
    headers = server.ask("GET", "/v1/models", headers={"Origin": "http://page.example"})[1]
    assert not [name for name in headers if name.startswith("access-control")]


def test_a_tenant_sees_nothing_of_anothers_in_the_pool(quire, tmp_path):
    """The state and the events hold neither hashes, pages nor sequences of another tenant while that one generates."""
    keys = tmp_path / "keys"
    keys.write_text("alice:a\nbob:b\n")
    server = Server("builtin", "--api-key-file", str(keys), "--operator-key", "root")
    over, seen = threading.Event(), {"alice": 0, "bob": 0, "root": 0, "pages": 0, "held": 0}
    body = json.dumps({**LONG, "max_tokens": 2000, "stream": False})

    def generate():  # one sequence after another, until all have looked
        while not over.is_set():
            server.ask("POST", "/v1/completions", raw=body, key="b")

    def look(who, key):
        state = json.loads(server.ask("GET", "/debug/pool/state", key=key)[2])
        seen[who] = max(seen[who], len(state["seqs"]))
        return state

    tenant = threading.Thread(target=generate, daemon=True)
    tenant.start()
    try:
        end = time.monotonic() + 60
        while not all(seen[what] for what in ("bob", "root", "pages", "held")) and time.monotonic() < end:
            for state in (look("alice", "a"), look("bob", "b")):
                assert not state["pages"] and not state["tree"] and not state["events"]["list"]
                assert "hash" not in json.dumps(state)
                seen["held"] = max(seen["held"], state["counts"]["held"])
            seen["pages"] = max(seen["pages"], len(look("root", "root")["pages"]))
        assert all(seen[what] for what in ("bob", "root", "pages", "held")) and not seen["alice"], seen
    finally:
        over.set()
        server.stop()


def test_a_body_over_the_limit_is_413(server):
    big = json.dumps({"model": "builtin", "prompt": "x" * (17 << 20)})
    assert server.ask("POST", "/v1/completions", raw=big)[0] == 413
    chunks = (c.encode() for c in [big[i:i + (1 << 20)] for i in range(0, len(big), 1 << 20)])
    connection = http.client.HTTPConnection(*server.address, timeout=60)
    try:
        connection.request("POST", "/v1/completions", chunks, {"content-type": "application/json", "authorization": f"Bearer {KEY}"}, encode_chunked=True)
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before all of it was sent
    assert connection.getresponse().status == 413


def test_what_an_answer_could_take_is_bounded_before_it_is_made(quire, tmp_path):
    """n x echo x logprobs by its product; what leaves max_tokens out by what it has become; streams by what they show of the prompt alone."""
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    server = Server("builtin", "--max-answer-bytes", "200K", "--chat-template", str(template))
    ask = {"model": "builtin", "prompt": [48] * 100, "max_tokens": 1, "temperature": 1, "ignore_eos": True}
    try:
        def post(**more):
            status, _, text = server.ask("POST", "/v1/completions", {**ask, **more})
            return status, text
        assert post(n=2, echo=True, logprobs=2)[0] == 200
        for stream in (False, True):
            status, text = post(n=64, echo=True, logprobs=20, stream=stream)
            assert status == 400 and json.loads(text)["error"]["param"] == "n" and "--max-answer-bytes" in text
        assert post(n=64, max_tokens=1500)[0] == 400
        assert post(n=8, max_tokens=1500, logprobs=2, stream=True)[0] == 200
        chat = {"model": "builtin", "messages": [{"role": "user", "content": "x " * 100}], "ignore_eos": True}
        status, _, text = server.ask("POST", "/v1/chat/completions", {**chat, "logprobs": True, "top_logprobs": 20})
        assert status == 400 and "the answer has over 204800 bytes (--max-answer-bytes)" in text, text[:300]
        status, _, text = server.ask("POST", "/v1/chat/completions", {**chat, "n": 8, "max_tokens": 1, "prompt_logprobs": 5})  # shown once, not eight times
        assert status == 200, text[:300]
    finally:
        server.stop()


def test_a_long_answer_is_the_same_as_a_short_ones_form(server):
    """Over a megabyte the answer is written in pieces: the same JSON, choice by choice."""
    ask = {"model": "builtin", "prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True, "logprobs": 20, "temperature": 0}
    one = json.loads(server.ask("POST", "/v1/completions", {**ask, "n": 1})[2])
    status, headers, text = server.ask("POST", "/v1/completions", {**ask, "n": 16})
    many = json.loads(text)
    assert status == 200 and len(text) > 1 << 20 and headers.get("transfer-encoding") == "chunked"
    assert many.keys() == one.keys() and [c["index"] for c in many["choices"]] == list(range(16))
    for choice in many["choices"]:
        assert {**choice, "index": 0} == one["choices"][0]
    assert many["usage"]["completion_tokens"] == 16 * 200


def test_what_is_not_understood_is_refused_or_named(server):
    ask = {"model": "builtin", "prompt": "Once upon a time", "max_tokens": 2}
    for name, value in {"guided_json": "{", "guided_regex": "a)", "regex": "(", "json_schema": "{", "grammar": "root", "ebnf": "root", "lora_name": "x",
                        "guidedRegex": "a", "repeat_penalty": 1.2}.items():
        status, _, text = server.ask("POST", "/v1/completions", {**ask, name: value})
        assert (status, json.loads(text)["error"]["param"]) == (400, name), text
    for stream in (False, True):
        status, headers, _ = server.ask("POST", "/v1/completions", {**ask, "stream": stream, "id_slot": 1, "cache_prompt": True})
        assert status == 200 and headers["warning"] == '199 quire "ignored: id_slot, cache_prompt"'
    status, headers, _ = server.ask("POST", "/v1/completions", {**ask, "guided_json": None, "truncate_prompt_tokens": 50})
    assert status == 200 and "warning" not in headers
    status, _, text = server.ask("POST", "/v1/completions", {**ask, "max_prompt_tokens": 2})
    assert (status, json.loads(text)["error"]["param"]) == (400, "max_prompt_tokens")
    status, _, text = server.ask("POST", "/v1/completions", {**ask, "truncate_prompt_tokens": 2})
    assert status == 200 and json.loads(text)["usage"]["prompt_tokens"] == 2


def test_a_chat_that_does_not_fit_names_messages(quire, tmp_path):
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    server = Server("builtin", "--chat-template", str(template))
    try:
        for content in ("x " * 3000, "x" * 2_000_000):  # tokenised to the limit; refused by its length
            for stream in (False, True):
                status, _, text = server.ask("POST", "/v1/chat/completions", {"model": "builtin", "messages": [{"role": "user", "content": content}], "stream": stream})
                error = json.loads(text)["error"]
                assert (status, error["param"], error["code"]) == (400, "messages", "context_length_exceeded"), text
                assert "maximum context length of 2048 tokens" in error["message"]
        import openai
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="x")
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="builtin", messages=[{"role": "user", "content": "x " * 3000}])
        assert refused.value.code == "context_length_exceeded"
    finally:
        server.stop()
