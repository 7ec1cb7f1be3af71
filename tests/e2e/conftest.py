"""Starts the real program. QUIRE_BIN names it (default build/quire), QUIRE_SHARED the vectors (default ../shared)."""
import http.client
import json
import os
import pathlib
import pty
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

import pytest

import chromium

QUIRE = os.environ.get("QUIRE_BIN", "build/quire")
SHARED = pathlib.Path(os.environ.get("QUIRE_SHARED", "../shared"))
KEY = "k-test"
START_SECONDS = 300  # only what never starts takes so long
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="quire-e2e-cache-")  # the packed forms that programs keep: not among the user's


def pytest_sessionfinish():
    shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)



def free_port():
    """A port below those that the system gives to whoever asks for any, as the servers of other tests do meanwhile."""
    for port in random.sample(range(20000, 32000), 1000):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            pass
    raise RuntimeError("1,000 ports are taken")


class Server:
    """`quire serve MODEL --port 0 ...`, ready when it has printed its address; waits False: with a port, it need not be ready."""

    def __init__(self, model, *flags, port=0, waits=True, environment=None, program=QUIRE):
        self.process = subprocess.Popen([program, "serve", str(model), "--port", str(port), *flags], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True, env=environment)
        self.said = []
        self.address = ("127.0.0.1", port) if not waits else None
        self.ready = threading.Event()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()
        if not waits:
            return
        if not self.ready.wait(START_SECONDS) or self.address is None:
            self.process.kill()
            raise RuntimeError("quire serve did not start:\n" + "".join(self.said))

    def _listen(self):
        for line in self.process.stderr:
            self.said.append(line)
            found = re.search(r"listening on http://([^\s:]+):(\d+)", line)
            if found:
                self.address = (found[1], int(found[2]))
                self.ready.set()
        self.ready.set()

    @property
    def url(self):
        return "http://%s:%d" % self.address

    def stop(self, seconds=120):
        """Ends it as an operator would; the exit status. All that it said is in `said` then."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(seconds)
        finally:
            self.process.kill()
            self.listener.join(seconds)

    def ask(self, method, path, body=None, raw=None, headers=None, key=KEY, timeout=600):
        """(status, headers in lower case, text) of one request on a connection of its own."""
        all_headers = {"content-type": "application/json", "authorization": f"Bearer {key}", **(headers or {})}
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        try:
            data = raw if raw is not None else json.dumps(body) if body is not None else None
            connection.request(method, path, body=data, headers={k: v for k, v in all_headers.items() if v})
            answer = connection.getresponse()
            text = answer.read().decode("utf-8")
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text
        finally:
            connection.close()

    def post_together(self, path, bodies, key=KEY, timeout=600):
        """(status, text) of requests that the server finds all at once: it is stopped while they are sent, so the machine's load does not matter."""
        connections = [http.client.HTTPConnection(*self.address, timeout=timeout) for _ in bodies]
        self.process.send_signal(signal.SIGSTOP)
        try:
            for connection, body in zip(connections, bodies):
                connection.request("POST", path, body=json.dumps(body), headers={"content-type": "application/json", "authorization": f"Bearer {key}"})
        finally:
            self.process.send_signal(signal.SIGCONT)
        answers = []
        for connection in connections:
            answer = connection.getresponse()
            answers.append((answer.status, answer.read().decode("utf-8")))
            connection.close()
        return answers

    def metric(self, name):
        """The value of a metric, all labels together. name: a regular expression, which may have labels."""
        values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.ask("GET", "/metrics")[2], re.M)
        assert values, name
        return sum(map(float, values))


def said_on_terminal(*arguments):
    """Runs a program whose stderr is a terminal: how it ended, with its stdout, and what it wrote there."""
    master, slave = pty.openpty()
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=slave, timeout=100)
    os.close(slave)
    said = b""
    try:
        while chunk := os.read(master, 4096):
            said += chunk
    except OSError:
        pass
    os.close(master)
    return done, said


@pytest.fixture(scope="session")
def quire():
    if not os.path.exists(QUIRE):
        pytest.skip(f"{QUIRE} is not built")
    return QUIRE


@pytest.fixture(scope="module")
def browser():
    if chromium.program() is None:
        pytest.skip("chromium is not installed (tools/packages.sh test)")
    b = chromium.Chromium()
    yield b
    b.close()


@pytest.fixture(scope="session")
def server(quire):
    """The built-in model."""
    s = Server("builtin", "--api-key", KEY)
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="session")
def golden_server(quire):
    """The model behind the recorded answers, started as it was then."""
    model = SHARED / "golden/api/model"
    if not model.exists():
        pytest.skip(f"{model} is not at hand")
    s = Server(model, "--api-key", KEY, "--served-model-name", "tiny", "--max-model-len", "1024", "--compute", "f32")
    yield s
    assert s.stop() == 0
