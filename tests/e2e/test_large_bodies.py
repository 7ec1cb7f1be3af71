"""Bodies near the limit: refused or served in bounded memory, while /health answers."""
import concurrent.futures
import json

import pytest

from conftest import KEY, Server

LARGE = 16_000_000


def resident_mb(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        lines = dict(line.split(":", 1) for line in f)
    return int(lines["VmRSS"].split()[0]) // 1024, int(lines["VmHWM"].split()[0]) // 1024


@pytest.fixture
def server(quire):
    s = Server("builtin", "--api-key", KEY)
    yield s
    assert s.stop() == 0


def post(server, raw):
    return server.ask("POST", "/v1/completions", raw=raw)


def test_millions_of_values_in_an_unknown_field_are_refused_in_bounded_memory(server):
    post(server, '{"prompt":"x","max_tokens":1}')
    before = resident_mb(server)[0]
    body = '{"prompt":"x","max_tokens":2,"other":[%s]}' % ",".join(["{}"] * (LARGE // 3))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(post, server, body) for _ in range(4)]
        while not all(a.done() for a in answers):
            assert server.ask("GET", "/health")[0] == 200
    for a in answers:
        status, _, text = a.result()
        assert status == 400 and "too many arrays and objects" in json.loads(text)["error"]["message"]
    after, most = resident_mb(server)
    assert most - before < 300 and after - before < 150, (before, most, after)


def test_many_large_bodies_at_once_wait_for_room_and_are_all_answered(server):
    post(server, '{"prompt":"x","max_tokens":1}')
    before = resident_mb(server)[0]
    body = '{"prompt":"x","max_tokens":2,"other":"%s"}' % ("a" * (LARGE - 100))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        statuses = [a[0] for a in pool.map(lambda _: post(server, body), range(16))]
    assert statuses == [200] * 16
    after, most = resident_mb(server)
    assert most - before < 300 and after - before < 150, (before, most, after)
