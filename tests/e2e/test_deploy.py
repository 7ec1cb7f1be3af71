"""The files of examples/deploy: systemd and nginx take them, and a stream comes through nginx event by event."""
import http.client
import json
import pathlib
import shutil
import subprocess

import pytest

from conftest import KEY, QUIRE, Server, free_port
from test_log import wait_for

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


def test_a_stream_comes_through_nginx_event_by_event(quire, tmp_path):
    nginx, port = need("nginx"), free_port()
    s = Server("builtin", "--api-key", KEY)
    site = (DEPLOY / "nginx.conf").read_text().replace("127.0.0.1:8000", "%s:%d" % s.address).replace("listen 8080", f"listen 127.0.0.1:{port}")
    temps = "".join(f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(f"pid {tmp_path}/pid;\nerror_log {tmp_path}/error.log;\ndaemon off;\nevents {{}}\nhttp {{\naccess_log off;\n{temps}{site}}}\n")
    checked = subprocess.run([nginx, "-t", "-p", str(tmp_path), "-c", str(configuration)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    process = subprocess.Popen([nginx, "-p", str(tmp_path), "-c", str(configuration)], stderr=subprocess.DEVNULL)
    try:
        def is_up():
            try:
                return ask("GET", "/ready").status == 200
            except OSError:
                return False

        def ask(method, path, body=None):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", "host": "llm.example.org"}
            connection.request(method, path, json.dumps(body) if body else None, headers)
            return connection.getresponse()

        wait_for(is_up)
        answer = ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True})
        assert answer.status == 200 and answer.readline().startswith(b"data: {")
        rest = answer.read()
        assert rest.endswith(b"data: [DONE]\n\n") and rest.count(b"data: {") > 50
        for path in ("/debug/requests", "/%64ebug/requests", "//debug/requests", "/pool", "/metrics"):
            assert ask("GET", path).status == 404
    finally:
        process.terminate()
        process.wait(30)
        assert s.stop() == 0
