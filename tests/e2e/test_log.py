"""The server's log, and the ids of requests."""
import concurrent.futures
import json
import pathlib
import re
import signal
import socket
import struct
import subprocess
import time

import pytest

from conftest import KEY, QUIRE, Server, free_port
from test_server import start_stream

SECRET = "Quartz-Jackdaw"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def wait_for(get, seconds=300):
    end = time.monotonic() + seconds
    while not (found := get()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def json_lines(server):
    return [json.loads(line) for line in server.said if line.startswith("{")]


def request_of(server, name):
    """The line of the request that sent this id."""
    return wait_for(lambda: next((line for line in json_lines(server) if line.get("id") == name), None))


@pytest.fixture(scope="module")
def logged(quire, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"anna:{KEY}\n")
    s = Server("builtin", "--api-key-file", str(keys), "--log-format", "json")
    yield s
    assert s.stop() == 0


def test_a_generation_is_one_line_with_its_counts_and_times_and_none_of_its_text(logged):
    body = {"prompt": f"{SECRET} was here", "max_tokens": 5, "ignore_eos": True, "temperature": 0}
    status, headers, text = logged.ask("POST", "/v1/completions", body, headers={"x-request-id": "one"})
    usage = json.loads(text)["usage"]
    line = request_of(logged, "one")
    assert status == 200 and headers["x-request-id"] == "one"
    assert re.fullmatch(TIME, line["time"]) and line["level"] == "info" and line["message"] == "request"
    assert (line["tenant"], line["method"], line["endpoint"], line["status"]) == ("anna", "POST", "/v1/completions", 200)
    assert (line["prompt_tokens"], line["completion_tokens"], line["cached_tokens"]) == (usage["prompt_tokens"], 5, 0)
    assert 0 <= line["queue_ms"] <= line["first_token_ms"] <= line["total_ms"] and line["finish_reason"] == "length"
    logged.ask("POST", "/v1/completions", {**body, "stream": True}, headers={"x-request-id": "two"})
    line = request_of(logged, "two")
    assert line["completion_tokens"] == 5 and line["cached_tokens"] > 0
    everything = "".join(logged.said)
    answer = json.loads(text)["choices"][0]["text"].strip()
    assert SECRET not in everything and KEY not in everything and answer not in everything


def test_refusals_are_logged_with_field_and_reason_but_not_with_what_the_field_says(logged):
    cases = [("r1", "POST", "/v1/completions", {"prompt": SECRET, "top_p": 7}, 400, "top_p", "top_p"),
             ("r2", "POST", "/v1/completions", {"prompt": SECRET, "temperature": SECRET}, 400, "temperature", "temperature"),
             ("r3", "POST", "/v1/chat/completions", {"messages": SECRET}, 400, "messages", "messages"),
             ("r4", "POST", "/v1/chat/completions", {"messages": [{"role": SECRET, "content": SECRET}, SECRET]}, 400, "messages", "messages"),
             ("r5", "POST", "/v1/completions", None, 400, "body", "JSON")]
    for name, method, path, body, status, param, reason in cases:
        raw = b'{"prompt": "%s" oops}' % SECRET.encode() if body is None else None
        got, headers, _ = logged.ask(method, path, body, raw=raw, headers={"x-request-id": name})
        line = request_of(logged, name)
        assert (got, line["status"], headers["x-request-id"], line["level"]) == (status, status, name, "info")
        assert param in line["param"] and reason in line["error"] and "path" not in line, line
    got, headers, _ = logged.ask("GET", "/v1/models", key="wrong-key", headers={"x-request-id": "r9"})
    line = request_of(logged, "r9")
    assert got == line["status"] == 401 and line["endpoint"] == "/v1/models" and "tenant" not in line and headers["x-request-id"] == "r9"
    assert "API key" in line["error"] and re.fullmatch(r"127\.0\.0\.1:\d+", line["client"])
    assert SECRET not in "".join(logged.said) and "wrong-key" not in "".join(logged.said)


@pytest.mark.parametrize("name, path, shown", [("p1", "/v1/chat/completion", "/v1/chat/completion"), ("p2", "/a%0Ab%1b[0m%ff%22", "/a%0Ab%1B[0m%FF%22"),
                                               ("p3", "/v1/models/no-such", "/v1/models/no-such"), ("p4", "/x?api_key=hidden", "/x"),
                                               ("p5", "/" + "%01" * 1000, "/" + "%01" * 42 + "..")])
def test_the_path_of_a_404_is_logged_escaped_and_cut(logged, name, path, shown):
    status, _, text = logged.ask("GET", path, headers={"x-request-id": name})
    line = request_of(logged, name)
    assert status == 404 and line["path"] == shown and len(line["path"]) <= 131
    message = json.loads(text)["error"]["message"]
    assert all(" " <= c <= "~" for c in message) and "hidden" not in "".join(logged.said)
    assert name == "p3" or message.startswith(f"GET {shown}: there is no such path")


@pytest.mark.parametrize("sent, taken", [("a" * 128, True), ("a" * 129, False), ("a b", False), ("a\tb", False), ("\xe4", False), (None, False),
                                         ('"\\', True)])
def test_an_id_of_128_visible_characters_is_given_back_and_another_one_is_made(logged, sent, taken):
    seen = set()
    for path in ("/version", "/nothing", "/v1/models"):
        headers = logged.ask("GET", path, headers={"x-request-id": sent})[1]
        assert (headers["x-request-id"] == sent) == taken
        seen.add(headers["x-request-id"])
        if not taken:
            assert re.fullmatch("req-[0-9a-f]{16}", headers["x-request-id"])
    assert len(seen) == (1 if taken else 3)


def test_a_stream_has_the_id_too_and_so_has_a_request_that_is_not_understood(logged):
    headers = logged.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 2, "stream": True}, headers={"x-request-id": "s1"})[1]
    assert headers["content-type"].startswith("text/event-stream") and headers["x-request-id"] == "s1"
    with socket.create_connection(logged.address, 30) as s:
        s.sendall(b"GET / HTTP/1.1\r\nX-Request-Id: m1\r\n\r\n")
        answer = b"".join(iter(lambda: s.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ") and b"\r\nX-Request-Id: m1\r\n" in answer
    assert request_of(logged, "m1")["status"] == 400


def test_a_client_that_leaves_is_logged_as_abort(logged):
    before = len([line for line in json_lines(logged) if line.get("finish_reason") == "abort"])
    for stream in (True, False):
        wait_for(lambda: logged.metric("vllm:num_requests_running") == 0)
        connection = start_stream(logged, stream, 2000)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leaves with a reset, which is seen at once
        if stream:
            connection.recv(1)
        else:
            wait_for(lambda: logged.metric("vllm:num_requests_running") > 0)
        connection.close()
    lines = wait_for(lambda: (all_ := [line for line in json_lines(logged) if line.get("finish_reason") == "abort"])[before + 1:] and all_)
    assert sorted(line["status"] for line in lines[before:]) == [200, 499]


def test_levels_and_flags_choose_the_lines(quire):
    wanted = {("--log-level", "debug"): {"/health", "/v1/models"}, (): {"/v1/models"},
              ("--disable-log-requests",): set(), ("--no-enable-log-requests", "--log-level", "debug"): set()}
    for flags, endpoints in wanted.items():
        s = Server("builtin", *flags)
        s.ask("GET", "/health")
        s.ask("GET", "/v1/models")
        assert s.stop() == 0
        lines = [line for line in s.said if " quire: request " in line]
        assert {re.search(r"endpoint=(\S+)", line)[1] for line in lines} == endpoints
        assert all(re.match(TIME + " (info|warning|error|debug) quire: ", line) for line in s.said), s.said
    quiet = subprocess.run([QUIRE, "serve", "builtin", "--log-level", "loud"], capture_output=True, text=True)
    assert quiet.returncode != 0 and "warning" in quiet.stderr


def test_a_drain_says_when_it_begins_who_is_left_and_when_it_ends(quire):
    s = Server("builtin", "--drain-s", "300")
    connection = start_stream(s, True, 1900)
    connection.recv(1)
    s.process.send_signal(signal.SIGTERM)
    while connection.recv(65536):
        pass
    assert s.process.wait(300) == 0
    wait_for(lambda: "stopped" in s.said[-1])
    said = "".join(s.said)
    assert said.index("draining: no new connections; 1 requests left") < said.index("finish_reason=") < said.index("stopped")


def test_a_log_that_nobody_reads_delays_no_request(quire):
    port = free_port()
    process = subprocess.Popen([QUIRE, "serve", "builtin", "--port", str(port)], stderr=subprocess.PIPE)
    s = Server.__new__(Server)
    s.process, s.address = process, ("127.0.0.1", port)
    try:
        def up():
            try:
                return s.ask("GET", "/health")[0] == 200
            except OSError:
                return False
        wait_for(up, 60)
        request = b"GET /v1/models HTTP/1.1\r\nHost: h\r\nX-Request-Id: " + b"x" * 128 + b"\r\n\r\n"
        with socket.create_connection(s.address, 60) as connection:  # some 700 KB of lines, where a pipe holds 64
            for _ in range(30):
                connection.sendall(request * 100)
                got = b""
                while got.count(b"HTTP/1.1 200") < 100 or not got.endswith(b"]}"):
                    got += connection.recv(1 << 20)
        process.terminate()
        assert process.wait(300) == 0
    finally:
        process.kill()


# What a line may have, by its message; other messages have the first three only. docs/http.md names them.
ALWAYS = {"time", "level", "message"}
OF_REQUESTS = {"id", "client", "tenant", "method", "endpoint", "path", "status", "prompt_tokens", "completion_tokens", "cached_tokens", "queue_ms",
               "first_token_ms", "total_ms", "finish_reason", "param", "error"}
NUMBERS = {"status", "prompt_tokens", "completion_tokens", "cached_tokens", "queue_ms", "first_token_ms", "total_ms"}


def test_every_line_under_load_is_json_with_the_documented_keys(quire):
    s = Server("builtin", "--api-key", KEY, "--log-format", "json", "--log-level", "debug", "--max-num-seqs", "4")

    def one(i):
        body = {"prompt": f"{SECRET} {i}", "max_tokens": 3 + i % 5, "ignore_eos": True, "stream": i % 3 == 0, "n": 1 + i % 2}
        sent = ['"\\', "a" * 128, f"plain-{i}", "a\tb"][i % 4]
        what = [("POST", "/v1/completions", body), ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 2}),
                ("GET", "/health", None), ("POST", "/v1/completions", {"prompt": SECRET, "top_p": 9}), ("GET", "/nothing", None)][i % 5]
        s.ask(*what, headers={"x-request-id": sent})
        if i % 10 == 0:
            connection = start_stream(s, True, 1000)
            connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(60)))
    assert s.stop() == 0
    wait_for(lambda: "stopped" in s.said[-1])
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/http.md").read_text()
    assert all(f"`{name}`" in page for name in OF_REQUESTS)
    requests = 0
    for text in s.said:
        line = json.loads(text)
        assert ALWAYS <= set(line) and re.fullmatch(TIME, line["time"]) and line["level"] in ("debug", "info", "warning", "error"), text
        assert SECRET not in text and KEY not in text
        if line["message"] != "request":
            assert set(line) - ALWAYS <= {"lines"}, text
            continue
        requests += 1
        assert set(line) - ALWAYS <= OF_REQUESTS and {"id", "status", "total_ms"} <= set(line), text
        assert all(isinstance(line[k], (int, float)) for k in NUMBERS & set(line)) and all(isinstance(line[k], str) for k in set(line) - NUMBERS), text
        assert ("finish_reason" in line) == ("completion_tokens" in line) == ("prompt_tokens" in line), text
    assert requests == 66
