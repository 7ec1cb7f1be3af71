"""The server as a service: drains, a socket file, open files, a service manager."""
import http.client
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import time

import pytest

import hub
from conftest import QUIRE, Server, free_port
from test_hub import GGUF, Machine
from test_log import wait_for
from test_server import start_stream


class Program:
    """`quire serve builtin` with any flags; reads what it says."""

    def __init__(self, *flags, **how):
        self.errors = open(how.pop("log"), "w+")
        self.process = subprocess.Popen([QUIRE, "serve", "builtin", *flags], stderr=self.errors, **how)

    @property
    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def wait_for(self, text):
        wait_for(lambda: text in self.said or self.process.poll() is not None, 60)
        assert text in self.said, self.said

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(300)
        finally:
            self.process.kill()


def ask_file(path, target="/v1/models", body=None):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(30)
        s.connect(str(path))
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        s.sendall(f"{'POST' if body else 'GET'} {target} HTTP/1.1\r\nHost: localhost\r\n{length}Connection: close\r\n\r\n{body or ''}".encode())
        return b"".join(iter(lambda: s.recv(65536), b""))


def test_drain_s_is_how_long_a_stop_waits(quire):
    s = Server("builtin", "--drain-s", "0.3", "--threads", "1", "--max-model-len", "2048")
    streams = [start_stream(s, True, 2000) for _ in range(16)]  # some seconds of work
    for stream in streams:
        stream.recv(1)
    s.process.send_signal(signal.SIGTERM)
    answers = [b"".join(iter(lambda: stream.recv(65536), b"")) for stream in streams]
    assert s.process.wait(300) == 0
    wait_for(lambda: "stopped" in s.said[-1])
    said = "".join(s.said)
    assert "with 0.3 s to finish" in said
    if "0 requests were cancelled" not in said and "draining ended" in said:
        assert any(b"shutting down" in answer for answer in answers)
    else:
        pytest.skip("they had their answers within 0.3 s")


def test_probes_are_answered_while_the_model_is_fetched(quire, tmp_path):
    stand_in = hub.Hub()
    try:
        machine = Machine(stand_in, tmp_path)
        stand_in.add("org/slow", {"m.gguf": GGUF})
        stand_in.gate.clear()
        s = Server("org/slow", environment=machine.environment | {"HF_HUB_DOWNLOAD_TIMEOUT": "3600"}, port=free_port(), waits=False)
        seen = []

        def is_ready():
            try:
                seen.append(s.ask("GET", "/ready"))
            except OSError:
                return False
            stand_in.gate.set()
            return seen[-1][0] == 200

        wait_for(is_ready)
        status, headers, text = seen[0]
        assert status == 503 and headers["retry-after"] == "1" and "the model is being loaded" in text
        assert json.loads(s.ask("GET", "/v1/models")[2])["data"][0]["id"] == "org/slow"
        assert s.stop() == 0 and not any("status=503" in line for line in s.said)  # probes that fail as expected
    finally:
        stand_in.close()


def test_drain_delay_s_is_how_long_a_server_serves_that_is_not_ready_any_more(quire):
    def ask_meanwhile(s):
        wait_for(lambda: s.ask("GET", "/ready")[0] == 503)
        unready, healthy = s.ask("GET", "/ready")[2], s.ask("GET", "/health")[0]
        kept = http.client.HTTPConnection(*s.address, timeout=30)
        kept.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 2}), {"content-type": "application/json"})
        answer = kept.getresponse()
        return "the server is shutting down" in unready, healthy, answer.status, answer.getheader("connection"), bool(answer.read())

    for delay in (1.5, 15, 150):  # a longer one where the machine was too busy for all of that
        s = Server("builtin", "--drain-delay-s", str(delay))
        assert s.ask("GET", "/ready")[0] == 200
        from_ = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        try:
            answers = ask_meanwhile(s)
        except (AssertionError, OSError, http.client.HTTPException) as e:
            answers = e
        if time.monotonic() - from_ < delay:
            break
        s.stop()
    assert answers == (True, 200, 200, "keep-alive", True)
    assert s.process.wait(300) == 0 and time.monotonic() - from_ >= delay
    s.stop()
    said = "".join(s.said)
    assert said.index(f"/ready now returns 503; draining begins in {delay} s") < said.index("endpoint=/v1/completions") < said.index("draining: no new")


@pytest.mark.parametrize("first, second", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT), (signal.SIGINT, None)])
def test_a_second_signal_or_ctrl_c_does_not_wait_for_the_delay(quire, first, second):
    s = Server("builtin", "--drain-delay-s", "1000")
    s.process.send_signal(first)
    if second is not None:
        wait_for(lambda: any("draining begins in" in line for line in s.said))
        s.process.send_signal(second)
    assert s.process.wait(300) == 0


def test_a_socket_file_serves_its_group_and_goes_with_the_server(quire, tmp_path):
    path = tmp_path / "quire.sock"
    p = Program("--host", f"unix:{path}", log=tmp_path / "log")
    try:
        p.wait_for(f"listening on unix:{path}")
        assert stat.S_ISSOCK(path.stat().st_mode) and stat.S_IMODE(path.stat().st_mode) == 0o660
        assert ask_file(path).startswith(b"HTTP/1.1 200 ")
        body = json.dumps({"prompt": "x", "guided_regex": "a" * (11 << 20)})  # refused by its first MiB, and the rest skipped
        answer = ask_file(path, "/v1/completions", body)
        assert answer.startswith(b"HTTP/1.1 400 ") and b"guided_regex has more than the allowed 1048576 bytes" in answer, answer[:500]
        second = subprocess.run([quire, "serve", "builtin", "--host", f"unix:{path}"], capture_output=True, text=True, timeout=60)
        assert second.returncode != 0 and "another server is listening there" in second.stderr
        assert ask_file(path).startswith(b"HTTP/1.1 200 ")
    finally:
        assert p.stop() == 0
    assert not path.exists()


def test_the_file_of_a_server_that_was_killed_is_replaced(quire, tmp_path):
    path = tmp_path / "quire.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
    p = Program("--host", f"unix:{path}", log=tmp_path / "log")
    try:
        p.wait_for("listening on")
        assert ask_file(path, "/health").startswith(b"HTTP/1.1 200 ")
        path.unlink()  # another takes its place: it is not the server's to remove
        path.write_text("mine")
    finally:
        assert p.stop() == 0
    assert path.read_text() == "mine"


@pytest.mark.parametrize("host, why", [("unix:", "from 1 to"), ("unix:" + "x" * 200, "from 1 to"), ("unix:/nowhere/at/all", "can't listen")])
def test_paths_that_cannot_be_are_refused(quire, tmp_path, host, why):
    done = subprocess.run([quire, "serve", "builtin", "--host", host], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and why in done.stderr
    plain = tmp_path / "plain"
    plain.write_text("mine")
    done = subprocess.run([quire, "serve", "builtin", "--host", f"unix:{plain}"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "not a socket" in done.stderr and plain.read_text() == "mine"


def test_the_limit_of_open_files_is_raised_for_the_connections(quire, tmp_path):
    def limit(soft, hard):
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    def open_files(pid):
        with open(f"/proc/{pid}/limits") as f:
            return int(re.search(r"Max open files\s+(\d+)", f.read())[1])
    p = Program("--port", "0", "--max-connections", "500", log=tmp_path / "log", preexec_fn=limit(200, 1000))
    p.wait_for("listening on")
    assert 500 < open_files(p.process.pid) <= 1000 and "open files" not in p.said
    assert p.stop() == 0
    p = Program("--port", "0", "--max-connections", "5000", log=tmp_path / "log2", preexec_fn=limit(200, 1000))
    p.wait_for("listening on")
    assert open_files(p.process.pid) == 1000 and " warning quire: --max-connections 5000: the system allows 1000 open files" in p.said
    assert p.stop() == 0


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_manager_is_told(quire, tmp_path, abstract):
    name = f"@quire-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1))
        manager.settimeout(60)
        p = Program("--port", "0", log=tmp_path / "log", env={**os.environ, "NOTIFY_SOCKET": name})
        assert manager.recv(100) == b"READY=1"
        p.wait_for("listening on")
        assert p.stop() == 0
        assert manager.recv(100) == b"STOPPING=1"


def test_a_service_manager_that_is_gone_is_no_failure(quire, tmp_path):
    p = Program("--port", "0", log=tmp_path / "log", env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "nobody")})
    p.wait_for("listening on")
    assert p.stop() == 0
