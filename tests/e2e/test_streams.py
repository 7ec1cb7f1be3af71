"""Running streams are forked, rolled back and steered from other connections, by their tenant alone."""
import http.client
import json
import threading

import openai
import pytest
from conftest import KEY, Server

OTHER = "k-other"
PROMPT = "Once upon a time the old prince"
LONG = {"model": "builtin", "prompt": PROMPT, "max_tokens": 1000, "ignore_eos": True, "seed": 5, "temperature": 1.0, "stream": True, "return_token_ids": True}


@pytest.fixture(scope="module")
def server(quire):
    s = Server("builtin", "--api-key", KEY, "--api-key", OTHER, "--server-threads", "3")
    yield s
    assert s.stop() == 0


class Stream:
    """A stream that is read event by event, as a client with a connection of its own would."""

    def __init__(self, server, body, key=KEY, path="/v1/completions"):
        self.connection = http.client.HTTPConnection(*server.address, timeout=120)
        self.connection.request("POST", path, json.dumps(body), {"content-type": "application/json", "authorization": f"Bearer {key}"})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.id, self.text, self.tokens, self.prompt, self.finish, self.rollbacks, self.over = None, "", [], 0, None, [], False

    def event(self):
        """Takes the next event in; what stands is in text and tokens."""
        line = self.answer.readline().decode()
        while not line.startswith("data: "):
            assert line, "the stream broke off"
            line = self.answer.readline().decode()
        if line.startswith("data: [DONE]"):
            self.over = True
            return None
        chunk = json.loads(line[6:])
        assert "error" not in chunk, chunk
        self.id = chunk["id"]
        for choice in chunk["choices"]:
            self.prompt = len(choice["prompt_token_ids"] or []) or self.prompt
            self.text += choice["text"]
            self.tokens += choice["token_ids"] or []
            self.finish = choice["finish_reason"]
        if "quire" in chunk:
            note = chunk["quire"]
            self.rollbacks.append(note["rollback"])
            assert self.text.startswith(note["text"])
            self.text = note["text"]
            del self.tokens[note["rollback"] - self.prompt:]
        return chunk

    def read(self, n):
        while len(self.tokens) < n:
            assert self.event() is not None
        return self

    def end(self):
        while not self.over:
            self.event()
        self.connection.close()
        return self


def command(server, stream, verb, key=KEY, **body):
    status, _, text = server.ask("POST", f"/v1/streams/{stream if isinstance(stream, str) else stream.id}/{verb}", body, key=key)
    return status, json.loads(text)


def complete(server, **body):
    status, _, text = server.ask("POST", "/v1/completions", {**LONG, "stream": False, **body})
    assert status == 200, text
    return json.loads(text)


@pytest.fixture(scope="module")
def plain(server):
    answer = complete(server)
    return answer["choices"][0]["text"], answer["choices"][0]["token_ids"], answer["usage"]["prompt_tokens"]


def test_a_rollback_says_the_same_again(server, plain):
    stream = Stream(server, LONG).read(60)
    status, told = command(server, stream, "rollback", position=stream.prompt + 20)
    assert status == 200, told
    assert told == {"id": stream.id, "object": "stream.rollback", "index": 0, "position": stream.prompt + 20}
    stream.end()
    assert stream.rollbacks == [stream.prompt + 20]
    assert (stream.text, stream.tokens, stream.finish) == (plain[0], plain[1], "length")


def test_a_rollback_with_another_seed_says_what_that_says(server, plain):
    stream = Stream(server, LONG).read(60)
    status, told = command(server, stream, "rollback", position=stream.prompt, seed=77, max_tokens=300)
    assert status == 200, told
    stream.end()
    other = complete(server, seed=77, max_tokens=300)["choices"][0]
    assert (stream.text, stream.tokens) == (other["text"], other["token_ids"])
    assert stream.tokens[:50] != plain[1][:50]


def test_a_steer_replaces_the_tail_by_text_or_tokens(server):
    stream = Stream(server, LONG).read(40)
    status, told = command(server, stream, "steer", position=stream.prompt + 10, text=" Suddenly the door was opened, and")
    assert status == 200 and told["object"] == "stream.steer", told
    stream.read(200)
    assert " Suddenly the door was opened, and" in stream.text
    status, told = command(server, stream, "steer", position=stream.prompt + 150, tokens=[100, 101, 102], max_tokens=900)
    assert status == 200, told
    stream.end()
    at = told["position"] - stream.prompt
    assert stream.tokens[at:at + 3] == [100, 101, 102]
    assert len(stream.tokens) == 900
    again = complete(server, prompt=server_tokens(server, stream, at + 3), max_tokens=900 - at - 3)
    assert again["choices"][0]["token_ids"] == stream.tokens[at + 3:]


def server_tokens(server, stream, n):
    """The ids of the prompt and the first n tokens of an answer."""
    return complete(server, max_tokens=1)["choices"][0]["prompt_token_ids"] + stream.tokens[:n]


def test_a_fork_is_answered_to_whoever_asked(server, plain):
    stream = Stream(server, LONG).read(50)
    ids = server_tokens(server, stream, 30)
    status, fork = command(server, stream, "fork", position=stream.prompt + 30, seed=9, max_tokens=40, return_token_ids=True)
    assert status == 200, fork
    assert fork["id"] != stream.id and fork["object"] == "text_completion"
    assert fork["usage"]["prompt_tokens"] == stream.prompt + 30
    fresh = complete(server, prompt=ids, seed=9, max_tokens=40)["choices"][0]
    assert fork["choices"][0]["token_ids"] == fresh["token_ids"]
    assert fork["choices"][0]["text"] == fresh["text"]
    # streamed, with the stream's own seed: it says what the stream says; without a seed it does not
    same = Stream(server, {"position": stream.prompt + 30, "stream": True, "seed": 5, "max_tokens": 100}, path=f"/v1/streams/{stream.id}/fork")
    own = Stream(server, {"position": stream.prompt + 30, "stream": True, "max_tokens": 100}, path=f"/v1/streams/{stream.id}/fork")
    same.end(), own.end()
    assert same.tokens == plain[1][30:130] != own.tokens
    stream.end()
    assert stream.tokens == plain[1]


def test_a_fork_can_be_forked_and_steered_itself(server, plain):
    stream = Stream(server, LONG).read(20)
    fork = Stream(server, {"position": stream.prompt + 20, "stream": True, "seed": 5}, path=f"/v1/streams/{stream.id}/fork").read(20)
    assert fork.tokens == plain[1][20:20 + len(fork.tokens)]
    status, told = command(server, fork, "rollback", position=stream.prompt + 20 + 5)
    assert status == 200, told
    assert command(server, fork, "rollback", position=stream.prompt + 19)[0] == 400  # its prompt
    stream.end()
    fork.prompt = stream.prompt + 20
    fork.end()
    assert fork.tokens == plain[1][20:]


def test_chat_is_forked_as_chat(quire, tmp_path):
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    s = Server("builtin", "--chat-template", str(template))
    try:
        client = openai.OpenAI(base_url=s.url + "/v1", api_key="x")
        chunks = client.chat.completions.create(model="builtin", messages=[{"role": "user", "content": PROMPT}], max_tokens=800, stream=True, seed=5,
                                                extra_body={"ignore_eos": True})
        text, forked = "", None
        for chunk in chunks:
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
            elif "quire" in chunk.model_extra:
                text = chunk.model_extra["quire"]["text"]
            if forked is None and len(text) > 60:
                status, _, body = s.ask("POST", f"/v1/streams/{chunk.id}/fork", {"seed": 5, "max_tokens": 4})
                forked = json.loads(body)
                assert status == 200, forked
                status, _, body = s.ask("POST", f"/v1/streams/{chunk.id}/steer", {"text": " and so it was."})
                assert status == 200, body
        assert forked["object"] == "chat.completion" and forked["choices"][0]["message"]["content"]
        assert " and so it was." in text
    finally:
        assert s.stop() == 0


def test_only_its_tenant_knows_a_stream(server, plain):
    stream = Stream(server, LONG).read(5)
    for verb, body in (("fork", {}), ("rollback", {"position": stream.prompt}), ("steer", {"text": "x"})):
        status, told = command(server, stream, verb, key=OTHER, **body)
        unknown = command(server, "cmpl-0123456789abc000", verb, **body)
        assert (status, told["error"]["message"]) == (404, unknown[1]["error"]["message"])
        assert unknown[0] == 404
        assert server.ask("POST", f"/v1/streams/{stream.id}/{verb}", body, key="k-wrong")[0] == 401
    assert stream.end().tokens == plain[1]


def test_what_cannot_be_says_why(server, plain):
    n = plain[2]
    for verb, body, param in (
        ("rollback", {}, "position"), ("rollback", {"position": n - 1}, "position"), ("rollback", {"position": 100000}, "position"),
        ("rollback", {"position": "3"}, "position"), ("rollback", {"position": n, "index": 1}, "index"), ("fork", {"position": n - 1}, "position"),
        ("rollback", {"position": n, "stop": "x"}, "stop"), ("rollback", {"position": n, "temperature": -1}, "temperature"),
        ("steer", {}, "text"), ("steer", {"text": "a", "tokens": [1]}, "text"), ("steer", {"text": 3}, "text"), ("steer", {"tokens": ["a"]}, "tokens"),
        ("steer", {"tokens": [99999999]}, "tokens"), ("fork", {"prompt": "x"}, "prompt"), ("fork", {"top_p": 3}, "top_p"),
        ("fork", {"echo": True, "logprobs": 1}, "echo"), ("fork", {"echo": True, "logprobs": 0, "max_tokens": 0}, "echo"),
        ("fork", {"prompt_logprobs": 1}, "prompt_logprobs"), ("fork", {"text": "x"}, "text"), ("rollback", {"position": n, "tokens": [1]}, "tokens"),
        ("steer", {"text": "x", "min_tokens": 2**31 - 1}, "min_tokens"),
    ):
        stream = Stream(server, LONG).read(10)  # each comes while its stream runs
        status, told = command(server, stream, verb, **body)
        assert (status, told["error"]["param"]) == (400, param), (verb, body, told)
        stream.connection.close()
    stream = Stream(server, LONG).read(10)
    assert server.ask("POST", f"/v1/streams/{stream.id}/fork", raw="[1]")[0] == 400
    assert server.ask("POST", f"/v1/streams/{stream.id}/stop", {})[0] == 404
    assert server.ask("GET", f"/v1/streams/{stream.id}/fork")[0] == 405
    for odd in ("x", "cmpl-", "cmpl-zzz", "cmpl-00000000000000ff", "a" * 300):
        assert command(server, odd, "fork")[0] == 404
    assert stream.end().tokens == plain[1]
    assert command(server, stream, "rollback", position=n)[0] == 404  # it has ended


def test_choices_are_addressed_by_index(server):
    body = {**LONG, "n": 2, "return_token_ids": False}
    answer = complete(server, n=2, max_tokens=1000)
    texts, n = [c["text"] for c in answer["choices"]], answer["usage"]["prompt_tokens"]
    connection = http.client.HTTPConnection(*server.address, timeout=120)
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
    answer, seen, sent = connection.getresponse(), ["", ""], False
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        for c in chunk["choices"]:
            seen[c["index"]] += c["text"]
        if "quire" in chunk:
            assert chunk["quire"]["index"] == 1
            seen[1] = chunk["quire"]["text"]
        if not sent and len(seen[1]) > 40:
            sent = True
            assert command(server, chunk["id"], "rollback", index=1, position=n + 2)[0] == 200
    connection.close()
    assert seen == texts


def test_commands_meet_the_end_of_their_stream(server):
    """Each is either done or told that the stream has ended, and neither ever hangs."""
    short = {**LONG, "max_tokens": 30}
    expected = complete(server, max_tokens=30)["choices"][0]["token_ids"]
    seen = set()
    for i in range(400):
        if i >= 40 and 200 in seen:
            break
        stream = Stream(server, short).read(1 + i % 40 * 29 // 40)
        result = []
        asks = [threading.Thread(target=lambda: result.append(command(server, stream, "rollback", position=stream.prompt + 1)[0])) for _ in range(2)]
        for t in asks:
            t.start()
        assert stream.end().tokens == expected
        for t in asks:
            t.join()
        assert set(result) <= {200, 404, 429}, result
        seen |= set(result)
    assert 200 in seen


def test_who_leaves_with_a_command_under_way_harms_nobody(server, plain):
    for i in range(20):
        stream = Stream(server, LONG).read(3)
        body = json.dumps({"position": stream.prompt + 1})
        other = http.client.HTTPConnection(*server.address)
        other.request("POST", f"/v1/streams/{stream.id}/rollback", body, {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
        (other if i % 2 else stream.connection).close()
        if i % 2 == 0:
            stream.answer.close()
            assert other.getresponse().status in (200, 404)
        else:
            assert stream.end().tokens == plain[1]
    assert complete(server)["choices"][0]["token_ids"] == plain[1]
