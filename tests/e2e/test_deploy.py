"""The files of examples/deploy: systemd and nginx take them, and a stream comes through nginx event by event."""
import http.client
import json
import pathlib
import shutil
import socket
import subprocess
import threading
import zlib

import pytest

from conftest import KEY, QUIRE, Server, free_port
from test_log import wait_for

GZIP = "gzip on;\ngzip_types text/event-stream;\ngzip_proxied any;\ngzip_min_length 0;\n"
DEPLOY = pathlib.Path("examples/deploy")


def need(program):
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if not found:
        pytest.skip(f"{program} is not installed")
    return found


def test_systemd_takes_the_unit(quire, tmp_path):
    unit = tmp_path / "quire.service"
    unit.write_text((DEPLOY / "quire.service").read_text().replace("/usr/local/bin/quire", str(pathlib.Path(QUIRE).resolve())))
    done = subprocess.run([need("systemd-analyze"), "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert done.returncode == 0 and "quire.service" not in done.stderr, done.stderr


class Relay:
    """Stands between nginx and the server. It lets answers pass, but of a stream that follows hold() only the first event, until let_go()."""

    def __init__(self, address):
        self.address, self.held, self.listener = address, None, socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def port(self):
        return self.listener.getsockname()[1]

    def hold(self):
        self.held = threading.Event()

    def let_go(self):
        self.held.set()

    def accept(self):
        while True:
            near, far = self.listener.accept()[0], socket.create_connection(self.address)
            threading.Thread(target=self.pass_on, args=(near, far, None), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(far, near, b"data: {"), daemon=True).start()

    def pass_on(self, source, to, mark):
        seen = b""
        try:
            while piece := source.recv(65536):
                if mark and self.held and not self.held.is_set():
                    seen += piece
                    begin = seen.find(mark)
                    end = seen.find(b"\n\n", begin) + 2 if begin >= 0 else 0
                    if end >= 2:
                        first = len(piece) - (len(seen) - end)
                        to.sendall(piece[:first])
                        self.held.wait()
                        piece, seen = piece[first:], b""
                to.sendall(piece)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            to.close()


def test_a_stream_comes_through_nginx_event_by_event(quire, tmp_path):
    """Plain, and to a client that takes gzip of a site that compresses, which holds events back where proxies buffer."""
    nginx, port = need("nginx"), free_port()
    s = Server("builtin", "--api-key", KEY)
    relay = Relay(s.address)
    site = (DEPLOY / "nginx.conf").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{relay.port()}").replace("listen 8080", f"listen 127.0.0.1:{port}")
    temps = "".join(f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(f"pid {tmp_path}/pid;\nerror_log {tmp_path}/error.log;\ndaemon off;\nevents {{}}\nhttp {{\naccess_log off;\n{GZIP}{temps}{site}}}\n")
    checked = subprocess.run([nginx, "-t", "-p", str(tmp_path), "-c", str(configuration)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    process = subprocess.Popen([nginx, "-p", str(tmp_path), "-c", str(configuration)], stderr=subprocess.DEVNULL)
    try:
        def is_up():
            try:
                return ask("GET", "/ready").status == 200
            except OSError:
                return False

        def ask(method, path, body=None, **more):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", "host": "llm.example.org", **more}
            connection.request(method, path, json.dumps(body) if body else None, headers)
            return connection.getresponse()

        wait_for(is_up)
        for encoding in ("identity", "gzip"):
            relay.hold()
            answer = ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True}, **{"accept-encoding": encoding})
            assert answer.status == 200 and answer.getheader("content-encoding", "identity") == encoding
            unpack = zlib.decompressobj(31).decompress if encoding == "gzip" else bytes
            text = b""
            while not text.endswith(b"\n\n"):
                text += unpack(answer.read1(65536))
            assert text.count(b"data: {") == 1
            relay.let_go()  # nginx has nothing after the first event until it has come out
            text += unpack(answer.read())
            assert text.endswith(b"data: [DONE]\n\n") and text.count(b"data: {") > 50
        for path in ("/debug/requests", "/%64ebug/requests", "//debug/requests", "/pool", "/metrics"):
            assert ask("GET", path).status == 404
    finally:
        process.terminate()
        process.wait(300)
        assert s.stop() == 0
