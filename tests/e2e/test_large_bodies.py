"""Bodies near the limit: refused or served in bounded memory, while /health answers."""
import concurrent.futures
import json
import socket

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


def test_silent_connections_of_one_tenant_keep_out_no_body_of_another(quire, tmp_path):
    (tmp_path / "keys").write_text("a:ka1\na:ka2\nb:kb\n")
    server = Server("builtin", "--api-key-file", str(tmp_path / "keys"))
    holders = []
    for i in range(60):  # two keys of one tenant; none of them goes on
        holders.append(socket.create_connection(server.address))
        length = "Transfer-Encoding: chunked" if i % 3 == 0 else "Content-Length: 16777216"
        head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ka{1 + i % 2}\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
        sent = b" " * (100_000 if i % 2 else 0)
        holders[-1].sendall(head.encode() + (b"%x\r\n%s" % (1 << 20, sent) if i % 3 == 0 else sent))
    body = '{"prompt":"x","max_tokens":1,"user":"%s"}'
    for key, n in [("kb", 100_000), ("kb", LARGE - 100), ("ka1", 100_000)]:
        assert server.ask("POST", "/v1/completions", raw=body % ("x" * n), key=key)[0] == 200
    assert server.metric("quire_http_bodies_waiting") == 0
    assert server.metric("quire_http_body_bytes") <= 30 * (2 << 16)
    for h in holders:
        h.close()
    assert server.stop() == 0


RULE, TOOLS = 1 << 20, 4 << 20  # bytes that a rule, and a list of tools, may have
PROPERTIES = {"type": "object", "properties": {f"p{i}": {"type": "string", "pattern": f"^a{i}{'b' * 100}[0-9]+$"} for i in range(50_000)}}
TAG = {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": PROPERTIES, "end": "</f>"}], "triggers": ["<f"]}
TEXT = "a" * (TOOLS + 1)
CUSTOM = {"type": "custom", "custom": {"name": "c", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": TEXT}}}}
RULES = [
    ("guided_json", PROPERTIES, RULE), ("guided_json", json.dumps(PROPERTIES), RULE), ("json_schema", PROPERTIES, RULE), ("json_schema", json.dumps(PROPERTIES), RULE),
    ("guided_regex", TEXT, RULE), ("regex", TEXT, RULE), ("guided_grammar", TEXT, RULE), ("grammar", TEXT, RULE), ("ebnf", TEXT, RULE), ("guided_choice", ["a", TEXT], RULE),
    *[("structured_outputs", {name: value}, 2 * RULE) for name, value in
      {"json": PROPERTIES, "regex": TEXT, "grammar": TEXT, "choice": ["a", TEXT], "structural_tag": json.dumps(TAG)}.items()],
    ("response_format", {"type": "json_schema", "json_schema": {"name": "n", "schema": PROPERTIES}}, 2 * RULE), ("response_format", TAG, 2 * RULE),
]
LISTS = [
    ("tools", [{"type": "function", "function": {"name": "f", "parameters": PROPERTIES}}], TOOLS), ("tools", [CUSTOM], TOOLS),
    ("functions", [{"name": "f", "parameters": PROPERTIES}], TOOLS), ("tool_choice", {"type": "function", "function": {"name": TEXT}}, TOOLS),
    ("function_call", {"name": TEXT}, TOOLS),
]


def test_a_rule_or_list_of_tools_that_is_too_large_is_refused_by_its_field(server):
    chat, completion = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}, {"prompt": "x", "max_tokens": 1}
    todo = [("/v1/completions", completion, rule) for rule in RULES] + [("/v1/chat/completions", chat, rule) for rule in RULES + LISTS]
    for path, body, (field, value, most) in todo:
        sent = json.dumps({**body, field: value})
        status, _, text = server.ask("POST", path, raw=sent)
        error = json.loads(text)["error"]
        words = f"{field} has more than the allowed {most} bytes (not counting white space and escapes)"
        assert (status, error["type"], error["code"], error["message"]) == (400, "invalid_request_error", 400, words), (path, field, text)
        assert error["param"] == (None if field in ("response_format", "structured_outputs") else field), (path, field, text)


def test_a_rule_of_just_under_the_bound_goes_to_the_compiler_however_it_is_written(server):
    schema = {"type": "null", "examples": [f"a word {i}" for i in range(20_000)]}
    spread = json.dumps(schema, indent=100)
    assert len(spread) > 2 * RULE > 2 * len(json.dumps(schema))
    for value in (spread, json.dumps("".join(f"\\u{ord(c):04x}" for c in json.dumps(schema))).replace("\\\\", "\\")):
        status, _, text = post(server, '{"prompt":"x","max_tokens":1,"guided_json":%s}' % value)
        assert status == 200, text


def test_a_check_of_a_schema_that_is_too_large_says_so(server):
    for field, value in [("schema", "a" * (RULE + 1)), ("guided_regex", "a" * (RULE + 1)), ("response_format", {"type": "json_schema", "json_schema": {"schema": {"title": "a" * 2 * RULE}}})]:
        status, _, text = server.ask("POST", "/v1/schemas/check", {field: value})
        report = json.loads(text)
        assert status == 200 and report["accepted"] is False and "not counting white space" in report["reason"] and report["keywords"] == [], (field, text)
