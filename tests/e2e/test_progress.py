"""return_progress: a stream says how much of its prompt is processed, in llama.cpp's form, before the first token."""
import json
import socket

import pytest
from conftest import KEY, Server

STORY = "The prince had been walking up and down the drawing room for a long time. " * 20
PATHS = ["/v1/completions", "/v1/chat/completions"]


@pytest.fixture(scope="module")
def server(quire, tmp_path_factory):
    template = tmp_path_factory.mktemp("progress") / "chat.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    s = Server("builtin", "--max-num-batched-tokens", "64", "--chat-template", str(template))
    yield s
    assert s.stop() == 0


def body(path, text, **fields):
    prompt = {"prompt": text} if path == PATHS[0] else {"messages": [{"role": "user", "content": text}]}
    return {"max_tokens": 4, "temperature": 0, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}, **prompt, **fields}


def chunks(server, path, text, **fields):
    status, _, answer = server.ask("POST", path, body(path, text, **fields))
    assert status == 200, answer
    return [json.loads(line[6:]) for line in answer.split("\n") if line.startswith("data: {")]


def check(found):
    """The progress of a stream, checked against its usage; how many chunks had it."""
    usage = found[-1]["usage"]
    told = [c["prompt_progress"] for c in found if "prompt_progress" in c]
    assert [c for c in found if "prompt_progress" in c] == found[:len(told)]  # before all else
    assert all(set(p) == {"total", "cache", "processed", "time_ms"} for p in told)
    assert {p["total"] for p in told} == {usage["prompt_tokens"]}
    assert {p["cache"] for p in told} == {usage["prompt_tokens_details"]["cached_tokens"]}
    processed = [p["processed"] for p in told]
    assert processed == sorted(set(processed)) and processed[0] > told[0]["cache"] and processed[-1] == usage["prompt_tokens"]
    times = [p["time_ms"] for p in told]
    assert times == sorted(times)
    return len(told)


def stream_with_several(server, path, name):
    """A prompt that was not asked before, and its stream. A connection that falls behind gets the newest progress alone, so
    on a busy machine it may take several prompts until a stream has more than one chunk of it."""
    for i in range(100):
        text = f"{name} {i} {path} {STORY}"
        found = chunks(server, path, text, return_progress=True)
        if check(found) > 1:
            return text, found
    raise AssertionError("no stream of 100 had more than one chunk of progress")


@pytest.mark.parametrize("path", PATHS)
def test_it_ascends_to_the_whole_prompt(server, path):
    text, found = stream_with_several(server, path, "story")
    first = found[0]
    assert first["object"] == ("text_completion" if path == PATHS[0] else "chat.completion.chunk") and first["id"] == found[-1]["id"]
    assert first["choices"][0]["finish_reason"] is None
    assert first["choices"][0].get("text", "") == "" and first["choices"][0].get("delta", {}).get("content") is None
    again = chunks(server, path, text, return_progress=True)
    assert check(again) == 1 and again[0]["prompt_progress"]["cache"] == again[0]["prompt_progress"]["total"] - 1
    plain = chunks(server, path, text)
    assert not any("prompt_progress" in c for c in plain)
    assert [c["choices"] for c in plain] == [c["choices"] for c in again if "prompt_progress" not in c]


def test_prompts_of_one_request_are_told_apart(server):
    found = chunks(server, PATHS[0], ["one " + STORY, "two " + STORY], return_progress=True, n=2)
    told = {}
    for c in found:
        if "prompt_progress" in c:
            told.setdefault(c["choices"][0]["index"], []).append(c["prompt_progress"]["processed"])
    assert set(told) == {0, 2}  # the first sample of each
    assert all(p == sorted(set(p)) for p in told.values()) and told[0][-1] + told[2][-1] == found[-1]["usage"]["prompt_tokens"]


def test_a_whole_answer_has_none_and_it_must_be_a_boolean(server):
    status, _, text = server.ask("POST", PATHS[0], body(PATHS[0], STORY, stream=False, stream_options=None, return_progress=True))
    assert status == 200 and "prompt_progress" not in text
    status, _, text = server.ask("POST", PATHS[1], body(PATHS[1], STORY, return_progress="yes"))
    assert status == 400 and json.loads(text)["error"]["param"] == "body.return_progress"


def test_a_client_that_does_not_read_holds_up_nobody(server):
    late = socket.create_connection(server.address)
    late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    data = json.dumps(body(PATHS[0], "late " + STORY, return_progress=True, max_tokens=200)).encode()
    late.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                 b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (KEY.encode(), len(data)) + data)
    stream_with_several(server, PATHS[0], "other")
    read = b""
    while piece := late.recv(65536):
        read += piece
    found = [json.loads(line[6:]) for line in read.decode().split("\n") if line.startswith("data: {")]
    assert check(found) >= 1 and found[-1]["usage"]["completion_tokens"] == 200
