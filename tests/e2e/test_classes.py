"""Classes of holes that were published for servers of this kind, each with a test that would find one here. docs/security.md lists them by number."""
import base64
import concurrent.futures
import contextlib
import ctypes
import itertools
import json
import os
import pathlib
import pickle
import random
import re
import resource
import shutil
import socket
import struct
import subprocess
import threading
import time

import pytest

from conftest import QUIRE, Server

LONG = bool(os.environ.get("QUIRE_TEST_LONG"))
ALICE, BOB = "alice-k-41", "bob-k-97"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
SMALL = {"prompt": "The prince", "max_tokens": 2, "temperature": 0}


@pytest.fixture(scope="module")
def home(quire, tmp_path_factory):
    """A directory with the model and the keys, whose names stand nowhere else."""
    path = tmp_path_factory.mktemp("zebra") / "quagga-home"
    path.mkdir()
    shutil.copy("models/builtin.gguf", path / "okapi-weights.gguf")
    (path / "okapi-keys").write_text(f"alice:{ALICE}\nbob:{BOB}\n")
    return path


@pytest.fixture(scope="module")
def server(home):
    s = Server(home / "okapi-weights.gguf", "--api-key-file", str(home / "okapi-keys"), "--served-model-name", "tiny", "--chat-template", TEMPLATE)
    yield s
    assert s.stop() == 0


# ---- tools ----

def post(server, body, path="/v1/completions", key=ALICE, **more):
    return server.ask("POST", path, body, key=key, **more)


def chat(server, content, key=ALICE, timeout=120, **more):
    return post(server, {"messages": [{"role": "user", "content": content}], "max_tokens": 1, "temperature": 0, **more}, "/v1/chat/completions", key, timeout=timeout)


def raw(server, data, leave=False):
    """All that comes back for these bytes until the server closes. The request says that it should; else leave, which closes our side.
    A stream without end, which no test here asks for, is cut at its second event."""
    with socket.create_connection(server.address, 60) as s:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            s.sendall(data)
            if leave:
                s.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            for block in iter(lambda: s.recv(65536), b""):
                answer += block
                if b"text/event-stream" in answer and answer.count(b"\n\n") > 1 and b"[DONE]" not in answer and b"completion" not in answer:
                    break
    return answer


def statuses(answer):
    return [int(s) for s in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def request(method, target, body=b"", headers=(), key=None):
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    lines += [f"Authorization: Bearer {key}"] if key else []
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


WORK = ("quire_steps_total", "quire_step_rows_total", r"vllm:prompt_tokens_total\{[^}]*\}", r"vllm:generation_tokens_total\{[^}]*\}",
        r"vllm:prefix_cache_queries_total\{[^}]*\}", r"vllm:num_requests_running\{[^}]*\}", r"vllm:num_requests_waiting\{[^}]*\}")


def work_done(server):
    """What the engine has done so far. Requests by reason are summed."""
    text = server.ask("GET", "/metrics", key=ALICE)[2]
    done = {name: float(re.search(rf"^{name} (\S+)$", text, re.M)[1]) for name in WORK}
    done["finished"] = sum(float(v) for v in re.findall(r"^vllm:request_success_total\{[^}]*\} (\S+)$", text, re.M))
    return done


def settled(server):
    """The engine's counters when nothing runs or waits any more."""
    while True:
        done = work_done(server)
        if done[WORK[-1]] == done[WORK[-2]] == 0:
            return done


def status_kb(server, name):
    with open(f"/proc/{server.process.pid}/status") as f:
        return int(next(line for line in f if line.startswith(name + ":")).split()[1])


class Opened:
    """Which files below a directory any process opens, by inotify: open(2) tells before it returns, so nothing comes late."""
    LIBC = ctypes.CDLL(None, use_errno=True)
    OPEN = 0x20

    def __init__(self, *directories):
        self.fd = self.LIBC.inotify_init1(os.O_NONBLOCK)
        for directory in directories:
            assert self.LIBC.inotify_add_watch(self.fd, os.fsencode(directory), self.OPEN) >= 0, os.strerror(ctypes.get_errno())

    def names(self):
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return set()
        names, at = set(), 0
        while at < len(data):
            _, _, _, n = struct.unpack_from("iIII", data, at)
            names.add(data[at + 16:at + 16 + n].rstrip(b"\0").decode())
            at += 16 + n
        return names

    def close(self):
        os.close(self.fd)


# ---- 1: binary tensors in a request ----

class Bomb:
    """A pickle that leaves a file where it is read."""
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_class_01_no_route_takes_serialised_objects(server, tmp_path):
    mark = tmp_path / "executed"
    bomb = base64.b64encode(pickle.dumps(Bomb(mark))).decode()
    before = settled(server)
    for field in ({"prompt_embeds": bomb}, {"prompt_embeds": [bomb]}, {"prompt": {"tensor": bomb}}, {"prompt": [[bomb]]},
                  {"prompt": [[1e30]]}, {"prompt": [[-1]]}, {"prompt": [[2 ** 31]]}, {"prompt": [[2 ** 32 + 5]]}, {"prompt": [[0.5]]}):
        assert post(server, {"max_tokens": 1, **field})[0] == 400, field
    for body in (bomb.encode(), pickle.dumps(Bomb(mark))):
        assert server.ask("POST", "/v1/completions", raw=body, key=ALICE)[0] == 400
        for kind in ("application/octet-stream", "application/x-pickle", "multipart/form-data; boundary=x"):
            assert server.ask("POST", "/v1/completions", raw=body, headers={"content-type": kind}, key=ALICE)[0] in (400, 415)
    for path in ("/v1/embeddings", "/pooling", "/v1/score", "/v1/rerank", "/v1/audio/transcriptions", "/v1/images/generations"):
        assert post(server, {"input": [[bomb]], "text_1": [bomb], "documents": {"tensor": bomb}}, path)[0] in (400, 404)
    assert settled(server) == before and not mark.exists()


# ---- 3: two features together end the engine ----

# Values at the edge of what each field may be; test_matrix.py compares answers under every pair of flags.
EDGES = {
    "n": 3, "best_of": 3, "echo": True, "logprobs": 5, "prompt_logprobs": 2, "stream": True, "stop": ["e", "\n\n"], "stop_token_ids": [5], "min_tokens": 3,
    "temperature": 2, "top_k": 1, "top_p": 1e-9, "min_p": 1, "typical_p": 1e-9, "top_n_sigma": 1e-9, "xtc_probability": 1, "mirostat": 2, "dynatemp_range": 2,
    "repetition_penalty": 1e-6, "presence_penalty": -2, "frequency_penalty": 2, "no_repeat_ngram_size": 1, "dry_multiplier": 1e30, "logit_bias": {"5": -100},
    "bad_words": ["the", " a"], "allowed_token_ids": [5, 6], "ignore_eos": True, "seed": 0, "use_beam_search": True, "beam_width": 4, "length_penalty": -32,
    "early_stopping": True, "priority": -5, "ttft_deadline_ms": 1, "cache_salt": "s", "cache_ttl": 1, "cache_priority": 0, "explain": True,
    "max_tokens": 1, "return_token_ids": True, "skip_special_tokens": False, "include_stop_str_in_output": True, "prompt": ["a", "b", "The prince " * 40],
}
SPECULATION = {"method": "ngram", "num_speculative_tokens": 8, "tree_width": 3}


@pytest.mark.parametrize("flags", [(), ("--speculative-config", json.dumps(SPECULATION), "--kv-pages", "24", "--page-size", "16", "--max-model-len", "384",
                                        "--chunk", "5", "--kv-dtype", "int8", "--swap-space", "1M")], ids=["plain", "speculation in few pages"])
def test_class_03_no_pair_of_fields_ends_the_engine(quire, flags):
    """Every pair of fields, many at once; test_matrix.py does the same for flags, and compares."""
    s = Server("builtin", *flags)
    pairs = list(itertools.combinations(EDGES, 2))

    def ask(pair):
        body = {**SMALL, "max_tokens": 6, **{field: EDGES[field] for field in pair}}
        status, _, text = s.ask("POST", "/v1/completions", body)
        return pair, status, text
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, pairs if LONG else pairs[::2] if flags else pairs[1::2]))
        assert [a for a in answers if a[1] not in (200, 400, 429)] == []
        assert sum(a[1] == 200 for a in answers) > len(answers) // 2
        assert s.ask("GET", "/health")[0] == 200 and s.ask("POST", "/v1/completions", SMALL)[0] == 200
    finally:
        assert s.stop() == 0


# ---- 4: errors that tell addresses, paths and internal names ----

def bad_values():
    """A body for every field that the server knows by some client, with values of every wrong kind."""
    fields = set(EDGES) | {"model", "messages", "stream_options", "response_format", "tools", "tool_choice", "lora", "guided_json", "guided_regex", "guided_grammar",
                           "structured_outputs", "chat_template", "chat_template_kwargs", "suffix", "user", "metadata", "logprob_token_ids", "vllm_xargs",
                           "kv_transfer_params", "prompt_embeds", "top_logprobs", "max_completion_tokens", "truncate_prompt_tokens", "num_beams", "beam_width"}
    values = [None, True, -1, 0, 0.5, 1e308, 2 ** 63, -2 ** 63, 10 ** 40, "", "x", "../../etc/passwd", "\x00", "\ud7ff", [], [[]], [None], {}, {"": None},
              {"a": [{}]}, "%s%n%p", ["x" * 300], [2 ** 31], {"type": "json_schema"}, "{{ 7 * 7 }}"]
    for field in sorted(fields):
        for value in values:
            yield {**SMALL, field: value}


BROKEN = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"prompt":"x"', b'{"prompt":"\\ud800"}', b'{"a":NaN}', b'{"prompt":"x"}}', b"[" * 5000, b'{"prompt":"x","prompt":"y"}',
          b'{"prompt\\u0000":"x"}', b'{"prompt":"x","max_tokens":1e999}', b"\x00", b'{"prompt":' + b"9" * 400 + b"}"]
TARGETS = ["/", "/x", "/v1", "/v1/", "/v1/x", "/v1/models/x", "/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/v1/models/" + "a" * 3000, "/v1/streams/x/fork", "/v1/streams/",
           "/v1/streams/cmpl-0/rollback", "/debug/pool/pages/99999999", "/debug/pool/pages/x", "/debug/", "/pool/sandbox", "/pool/x", "/%zz", "/%00", "*", "/../../../etc/passwd"]
HEADS = [b"X\r\n\r\n", b"GET /health HTTP/9.9\r\nHost: h\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n",
         b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", b"GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", b"GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n",
         b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 70000 + b"\r\n\r\n", b"POST / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n"]


def symbols():
    """Names in the program that no client can know: of functions and variables, with an underscore or more."""
    found = subprocess.run(["nm", QUIRE], capture_output=True, text=True)
    return {name for name in re.findall(r" [a-zA-Z] ([a-z]+(?:_[a-z0-9]+)+)$", found.stdout, re.M)}


def test_class_04_no_answer_tells_addresses_paths_or_internal_names(server, home):
    sources = {path.name for path in pathlib.Path("src").rglob("*.[ch]")}
    fields = set(re.findall(r'\{"([a-z_]+)"', pathlib.Path("src/request/field_table.c").read_text()))
    internal = sources | symbols() - fields
    shapes = re.compile(r"0x[0-9a-f]{5,}|\b(?=\d*[a-f])[0-9a-f]{12,16}\b|\(nil\)|/(tmp|usr|home|root|work|proc|lib|var)\b|\b(src|build|include)/|ssertion|"
                        r"No such file|errno|Permission denied|\.so\b|core dumped|%[sdpzn]\b|zebra|quagga|okapi", re.I)

    def look(what, text, sent=""):
        text = re.sub(r"\breq-[0-9a-f]{16}\b", "", text)  # the id that the server makes for a request: a random number
        for word in set(re.findall(r"[\w./-]+", text)) & internal:
            assert word in sent, (what, word, text)
        for found in shapes.finditer(text):
            assert found[0].lower() in sent.lower(), (what, found[0], text[:2000])

    n = 0
    for body in bad_values():
        for path in ("/v1/completions", "/v1/chat/completions"):
            body = body if path == "/v1/completions" else {**{k: v for k, v in body.items() if k != "prompt"}, "messages": body.get("messages", [{"role": "user", "content": "x"}])}
            status, headers, text = post(server, body, path)
            assert status < 500, (body, text)
            if status >= 400:
                n += 1
                look(body, text, json.dumps(body))
                look(body, str(headers), json.dumps(body))
    for body in BROKEN:
        status, headers, text = server.ask("POST", "/v1/completions", raw=body, key=ALICE)
        assert 400 <= status < 500, (body, text)
        look(body, text + str(headers))
    for target in TARGETS:
        for method in ("GET", "POST", "DELETE"):
            for key in (ALICE, None):
                answer = raw(server, request(method, target, key=key)).decode()
                look((method, target), answer, target)
    for head in HEADS:
        look(head, raw(server, head).decode())
    for path in ("/metrics", "/version", "/v1/models", "/health"):
        look(path, server.ask("GET", path, key=ALICE)[2])
    assert n > 1000


# ---- 5: the stack grows with chunks or nesting ----

def chunked(body, size):
    """The body in chunks of so many bytes."""
    whole, rest = divmod(len(body), size)
    chunk = b"%x\r\n" % size
    out = b"".join(chunk + body[i * size:(i + 1) * size] + b"\r\n" for i in range(whole))
    return out + (b"%x\r\n" % rest + body[-rest:] + b"\r\n" if rest else b"") + b"0\r\n\r\n"


CHUNKED = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ALICE}\r\nContent-Type: application/json\r\n"
           "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n").encode()


@pytest.fixture
def tight(quire):
    """A server whose first thread may not have more stack than it has now and 256 KB; a thread started later gets no more either."""
    s = Server("builtin", "--api-key", ALICE)
    _, hard = resource.prlimit(s.process.pid, resource.RLIMIT_STACK)
    resource.prlimit(s.process.pid, resource.RLIMIT_STACK, ((status_kb(s, "VmStk") + 256) << 10, hard))
    yield s
    assert s.stop() == 0


def test_class_05_the_stack_does_not_grow_with_chunks(tight):
    body = b'{"prompt":"x","max_tokens":1,"user":"%s"}' % (b"a" * 3_000_000)
    before = status_kb(tight, "VmStk")
    for size in (6, 1):
        answer = raw(tight, CHUNKED + chunked(body if size == 6 else body[:-2_900_000] + b'"}', size))
        assert statuses(answer) == [200], answer[:500]
    assert status_kb(tight, "VmStk") <= before + 64


def test_class_05_the_stack_does_not_grow_with_nesting(tight):
    before = status_kb(tight, "VmStk")
    deep = {"arrays": b"[" * 1_000_000, "objects": b'{"a":' * 300_000, "closed": b"[" * 500_000 + b"]" * 500_000, "mixed": b'[{"a":' * 200_000}
    for name, inner in deep.items():
        for where in (b"%s", b'{"prompt":%s', b'{"prompt":"x","other":%s}', b'{"messages":%s}', b'{"prompt":"x","logit_bias":{"1":%s}}'):
            for size in (None, 4096):
                body = where % inner
                status = statuses(raw(tight, CHUNKED + chunked(body, size)))[0] if size else tight.ask("POST", "/v1/completions", raw=body, key=ALICE)[0]
                assert status == 400, (name, where)
    assert status_kb(tight, "VmStk") <= before + 64


def test_class_05_a_value_as_deep_as_a_request_may_be_is_rendered(quire):
    """What recurses (trees, templates) gets the deepest value that is let in."""
    s = Server("builtin", "--api-key", ALICE, "--chat-template", "{{ deep | tojson }}{{ deep }}{{ messages }}")
    try:
        statuses = []
        for depth in (1, 20, 40, 61, 62, 63, 64, 65):
            value = "[" * depth + "]" * depth
            body = '{"messages":[{"role":"user","content":"x"}],"max_tokens":1,"chat_template_kwargs":{"deep":%s}}' % value
            statuses.append(s.ask("POST", "/v1/chat/completions", raw=body, key=ALICE)[0])
        assert statuses[:3] == [200] * 3 and statuses[-1] == 400 and set(statuses) == {200, 400}
    finally:
        assert s.stop() == 0


# ---- 6: a second way to a route, before the key is checked ----

KEYED = ["/v1/models", "/v1/models/tiny", "/v1/completions", "/v1/chat/completions", "/v1/streams/cmpl-1/fork", "/v1/streams/cmpl-1/rollback",
         "/v1/streams/cmpl-1/steer", "/debug/pool", "/debug/pool/state", "/debug/pool/pages/0", "/pool/sandbox"]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "OPTIONS"]


def spellings(path):
    """The path as a client may write it. What another server would take for the route must be refused here as the route is, or as nothing."""
    first, rest = path[1:].split("/", 1)
    yield path
    yield from (path.upper(), path.title(), path + "/", path + "?x=1", path + "?api_key=x", "/" + path, path.replace("/", "//"), "/." + path, "/x/.." + path)
    yield from (f"/{first}/./{rest}", f"/{first}/x/../{rest}", f"/{first}/%2e/{rest}", f"/%2e%2e{path}", f"/health/..{path}", f"/health/%2e%2e{path}", f"/pool/..{path}")
    yield from (path.replace("/", "/%2f", 1), f"/{first}%2f{rest}", f"/{first}%2F{rest}", f"/{first}%5c{rest}", f"/%{ord(first[0]):x}{first[1:]}/{rest}", f"/{first};x/{rest}")
    yield from (path + "%20", path + "%0a", path + ";", path + "%3f", path + "%23", path + ".json", f"http://localhost{path}", f"HTTP://LOCALHOST{path}", f"http://x:1{path}?y")
    yield from (f"https://a@b{path}", f"{path}%252e", "".join(f"%{ord(c):02x}" for c in path).replace("%2f", "/"))


WRONG = {"none": [], "empty": ["Authorization: Bearer "], "wrong": ["Authorization: Bearer nobody"], "cut": [f"Authorization: Bearer {ALICE[:-1]}"],
         "longer": [f"Authorization: Bearer {ALICE}x"], "other scheme": [f"Authorization: Basic {ALICE}"], "no scheme": [f"Authorization: {ALICE}"],
         "wrong api key": [f"X-Api-Key: {ALICE}x"], "other header": [f"X-Auth-Key: {ALICE}", f"Proxy-Authorization: Bearer {ALICE}", f"Cookie: Authorization=Bearer {ALICE}"],
         "upgrade": ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"],
         "h2c": ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"],
         "override": ["X-HTTP-Method-Override: POST", "X-Original-URL: /v1/completions", "X-Rewrite-URL: /v1/completions", "X-Forwarded-For: 127.0.0.1"]}


def test_class_06_no_spelling_of_a_route_passes_without_a_key(server):
    body = json.dumps({**SMALL, "messages": [{"role": "user", "content": "x"}]}).encode()
    before, n = settled(server), 0
    answered = server.metric("quire_http_requests_total")
    for path in KEYED:
        for target in spellings(path):
            for method in METHODS:
                got = statuses(raw(server, request(method, target, body if method in ("POST", "PUT", "PATCH") else b"")))
                allowed = (204, 401, 404, 405) if method == "OPTIONS" else (401, 404)
                assert len(got) == 1 and got[0] in allowed, (method, target, got)
                n += 1
        for name, headers in WRONG.items():
            for method in ("GET", "POST"):
                got = statuses(raw(server, request(method, path, body, headers)))
                assert got == [401], (method, path, name, got)
                n += 1
    assert server.metric("quire_http_requests_total") == answered + n + 1  # each was answered once, and so was the look at it before
    # Nothing waits unseen either: one more request of a tenant is all the work that is done since.
    usage = json.loads(post(server, SMALL)[2])["usage"]
    after = settled(server)
    assert after["finished"] == before["finished"] + 1
    assert after[WORK[3]] == before[WORK[3]] + usage["completion_tokens"] and after[WORK[2]] == before[WORK[2]] + usage["prompt_tokens"]


def test_class_06_a_key_counts_for_its_own_request_only(server):
    """On one connection: with the key, without, in one packet and in two."""
    body = json.dumps(SMALL).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    good = f"{head}Authorization: Bearer {ALICE}\r\n\r\n".encode() + body
    bad, last = f"{head}\r\n".encode() + body, f"{head}Connection: close\r\n\r\n".encode() + body
    before = settled(server)["finished"]
    assert statuses(raw(server, good + bad + good + last)) == [200, 401, 200, 401]
    assert settled(server)["finished"] == before + 2


def test_class_06_a_body_without_a_key_is_not_kept(server):
    """The head is refused at once; what follows is dropped, however much it is."""
    before = status_kb(server, "VmHWM")
    body = b'{"prompt":"' + b"a" * 12_000_000 + b'"}'
    got = [statuses(raw(server, request("POST", path, body))) for path in ("/v1/completions", "/v1/chat/completions", "/pool/sandbox")]
    assert all(g in ([401], []) for g in got), got
    assert status_kb(server, "VmHWM") < before + 8192


# ---- 7: a model's configuration names code ----

def test_class_07_code_beside_a_model_is_never_opened(quire, tmp_path):
    source = pathlib.Path(os.environ.get("QUIRE_SHARED", "../shared")) / "golden/api/model"
    if not source.exists():
        pytest.skip(f"{source} is not at hand")
    model, mark = tmp_path / "model", tmp_path / "executed"
    shutil.copytree(source, model)
    code = f"import os\nos.mkdir({str(mark)!r})\n"
    names = ["modeling_evil.py", "configuration_evil.py", "tokenization_evil.py", "custom.so", "extra.pkl", "pytorch_model.bin", "training_args.bin"]
    for name in names:
        (model / name).write_bytes(pickle.dumps(Bomb(mark)) if name.endswith(("pkl", "bin")) else code.encode())
    for name, keys in {"config.json": {"AutoConfig": "configuration_evil.Evil", "AutoModelForCausalLM": "modeling_evil.Evil"}, "tokenizer_config.json": {"AutoTokenizer": ["tokenization_evil.Evil", None]}}.items():
        text = json.loads((model / name).read_text())
        text |= {"auto_map": keys, "trust_remote_code": True, "custom_pipelines": {"x": {"impl": "modeling_evil.Evil"}}, "tokenizer_file": "/etc/passwd", "name_or_path": "/etc"}
        (model / name).write_text(json.dumps(text))
    opened = Opened(model)
    s = Server(model, "--max-model-len", "256", "--compute", "f32")
    assert s.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
    assert s.stop() == 0
    seen = opened.names()
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= seen and not seen & set(names), seen
    (model / "model.safetensors").unlink()
    done = subprocess.run([QUIRE, "inspect", str(model)], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "pickles" in done.stderr
    assert not opened.names() & set(names) and not mark.exists()
    opened.close()


# ---- 8: names that become paths ----

def test_class_08_no_name_in_a_request_becomes_a_path(server, tmp_path, home):
    (tmp_path / "canary").write_text("a secret")
    (tmp_path / "canary.gguf").write_bytes((home / "okapi-weights.gguf").read_bytes())
    opened = Opened(tmp_path)
    (tmp_path / "canary").read_text()
    assert opened.names() == {"canary"}  # the watch sees an open
    up = "../" * 30
    names = ["/etc/passwd", up + "etc/passwd", f"{tmp_path}/canary", f"{up[:-1]}{tmp_path}/canary", f"file://{tmp_path}/canary", f"{tmp_path}/canary.gguf", "%2e%2e/%2e%2e/etc/passwd",
             f"{tmp_path}/canary\x00.gguf", "..", ".", "", "con", "a/../../etc/passwd", "..\\..\\etc\\passwd", f"{tmp_path}//canary", "~/canary", "$HOME", "`id`", "|id"]
    fields = ["model", "lora", "adapter", "lora_path", "user", "session_id", "cache_salt", "prompt_cache_key", "request_id", "chat_template", "tokenizer", "suffix", "prompt",
              "grammar", "speculative_config", "kv_transfer_params", "draft_model", "safety_identifier"]
    for name in names:
        for field in fields:
            status, _, text = post(server, {**SMALL, "max_tokens": 1, field: name})
            assert status in (200, 400, 404), (field, name, text)
            assert field != "model" or status == 404 or name == "", (name, status)
            assert "a secret" not in text and "root:" not in text
        for content in (name, [{"type": "text", "text": name}], [{"type": "image_url", "image_url": {"url": f"file://{name}"}}], [{"type": "input_file", "file_id": name}]):
            assert chat(server, content)[0] in (200, 400)
        quoted = "".join(f"%{b:02x}" for b in name.encode() if b)
        for target in (f"/v1/models/{quoted}", f"/v1/streams/{quoted}/fork", f"/{quoted}", f"/pool/{quoted}", f"/debug/pool/pages/{quoted}"):
            got = statuses(raw(server, request("POST" if "streams" in target else "GET", target, b"{}" if "streams" in target else b"", key=ALICE)))
            assert got in ([404], [400], [200] if quoted == "" else []), (target, got)
    for path in (f"/v1/models/{up}etc/passwd", f"/..{tmp_path}/canary", f"/pool/{up}etc/passwd", "/static/../etc/passwd"):
        assert statuses(raw(server, request("GET", path, key=ALICE))) == [404]
    assert opened.names() == set()
    opened.close()


# ---- 9: an internal bus that listens ----

def sockets(pid):
    """(protocol, local address, state) of every socket of a process."""
    owned = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))
            owned |= {found[1]} if found else set()
    listed = []
    for protocol in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        path = pathlib.Path(f"/proc/{pid}/net/{protocol}")
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            words = line.split()
            if words[9] in owned:
                listed.append((protocol, words[1], words[3]))
                owned.discard(words[9])
    return listed + [("other", inode, "") for inode in owned]


@pytest.mark.parametrize("flags", [(), ("--speculative-config", '{"method":"ngram"}', "--swap-space", "1M", "--kv-tier-host-bytes", "8M", "--threads", "2")])
def test_class_09_one_port_on_loopback_is_all_that_listens(quire, flags, tmp_path):
    s = Server("builtin", *flags, "--kv-tier-file", str(tmp_path / "tier"))
    try:
        assert s.ask("POST", "/v1/completions", SMALL)[0] == 200
        address = "0100007F:%04X" % s.address[1]
        found = None
        while found != sockets(s.process.pid):  # none is closed between a look at the descriptors and one at the tables
            found = sockets(s.process.pid)
        left = [entry for entry in found if entry[1:] not in ((address, "01"), (address, "08"))]  # connections to that port, closed by the client or not
        assert left == [("tcp", address, "0A")]
    finally:
        assert s.stop() == 0


# ---- 10: stored data that is executed ----

def test_class_10_a_stored_tier_page_is_data(quire, tmp_path):
    """Whatever lies in the tier's directory is checked, not run: intact pages are used, others are not. (tests/kv and tests/fuzz do it byte by byte.)"""
    tier, mark = tmp_path / "tier", tmp_path / "executed"
    flags = ("--kv-tier-file", str(tier), "--kv-tier-wait", "5", "--kv-pages", "100", "--max-model-len", "256")
    bodies = [{"prompt": f"{i} " + "The prince looked at her and " * 12, "max_tokens": 4, "temperature": 0, "logprobs": 1} for i in range(12)]

    def serve():
        """The answers, how many pages the tier gave for them, and how many it found damaged."""
        s = Server("builtin", *flags)
        try:
            answers = [json.loads(s.ask("POST", "/v1/completions", b)[2])["choices"][0] for b in bodies]
            return [(a["text"], a["logprobs"]) for a in answers], s.metric(r'quire_tier_hits_total\{tier="file"\}'), s.metric(r'quire_tier_errors_total\{tier="file"\}')
        finally:
            assert s.stop() == 0
    first, _, _ = serve()
    again, hits, errors = serve()
    assert again == first and hits > 0 and errors == 0
    files = {path: path.read_bytes() for path in tier.rglob("*") if path.is_file()}
    pages = next(path for path in files if path.suffix == ".pages")
    damaged = bytearray(files[pages])
    damaged[::1000] = bytes(byte ^ 0x40 for byte in damaged[::1000])
    pages.write_bytes(damaged)
    again, _, errors = serve()
    assert again == first and errors > 0
    bomb = pickle.dumps(Bomb(mark))
    for path, data in files.items():
        path.write_bytes(bomb + data[len(bomb):])
    (tier / "zz.pkl").write_bytes(bomb)
    assert serve()[0] == first and not mark.exists()


# ---- 11: code in a request ----

CODE = ["{{ 7 * 7 }}", "{% for i in range(10) %}x{% endfor %}", "{{ ''.__class__.__mro__ }}", "{{ messages }}", "{% set x = 1 %}", "{# gone #}", "${7*7}", "<%= 7*7 %>",
        "__import__('os').system('id')", "{% include '/etc/passwd' %}", "{{ raise_exception('x') }}", "{%- if 1 -%}"]


def test_class_11_no_text_of_a_request_is_evaluated(server):
    """What a message says stands in the prompt as it is: as many tokens as the same text has by itself."""
    for code in CODE:
        for place in ("content", "role", "name"):
            message = {"role": "user", "content": "x", place: code}
            status, _, text = post(server, {"messages": [message], "max_tokens": 1, "return_token_ids": True, "add_special_tokens": False}, "/v1/chat/completions")
            assert status in (200, 400), text
            if status == 400 or place == "name":
                continue
            rendered = "%s: %s\n" % (message["role"], message["content"])
            plain = json.loads(post(server, {"prompt": rendered, "max_tokens": 1, "return_token_ids": True, "add_special_tokens": False})[2])
            assert json.loads(text)["prompt_token_ids"] == plain["choices"][0]["prompt_token_ids"], code
        for field in ("chat_template", "tokenizer", "logits_processors", "guided_grammar", "vllm_xargs", "custom_logit_processor"):
            assert chat(server, "x", **{field: code})[0] in (200, 400)
    status, _, text = chat(server, "x", chat_template="{{ 7 * 7 }}")
    assert status == 400 and "chat_template" in text
    for name in ("messages", "range", "namespace", "x"):  # a variable may be refused; a text in one stays a text
        status, _, text = chat(server, "x", chat_template_kwargs={name: "{{ 7 * 7 }}"})
        assert status == 400 or json.loads(text)["usage"]["prompt_tokens"] == json.loads(chat(server, "x")[2])["usage"]["prompt_tokens"], name


# ---- 12: an assertion that a client can reach ----

def mutated(draw, seeds):
    """A request with some of its bytes or values changed, and whether its head was: then the server may wait for more than comes."""
    body = json.loads(json.dumps(draw.choice(seeds)))
    for _ in range(draw.choice([0, 0, 1, 1, 2, 3])):
        field = draw.choice(sorted(EDGES) + ["messages", "stream_options", "cache_ttl"])
        body[field] = draw.choice([EDGES.get(field), None, -1, 0, 1, 2 ** 31 - 1, -2 ** 31, 2 ** 53, 1e-300, 1e300, "", "x" * 5000, [], [0], ["", "a"], {}, True, [[1, 2], [3]],
                                   draw.randrange(-5, 500), draw.random() * 4 - 1])
    if "max_tokens" not in body or not isinstance(body["max_tokens"], int) or not 0 <= body["max_tokens"] < 8:
        body["max_tokens"] = draw.choice([0, 1, 2, 7, -1, None])
    data = bytearray(json.dumps(body).encode())
    for _ in range(draw.choice([0, 0, 0, 1, 2, 8])):
        at, kind = draw.randrange(len(data)), draw.randrange(4)
        data[at:at + (kind > 0)] = b"" if kind == 1 else bytes([draw.randrange(256)]) if kind == 2 else draw.choice([b"\\u0000", b"\xff", b'"', b"[", b"}", b"1e9", b"\\"])
    path = draw.choice(["/v1/completions", "/v1/completions", "/v1/chat/completions", "/v1/streams/cmpl-1/fork", "/pool/sandbox"])
    head = bytearray(request("POST", path, bytes(data), key=ALICE)[:-len(data)] if data else request("POST", path, key=ALICE))
    changes = draw.choice([0, 0, 0, 0, 1, 2])
    for _ in range(changes):
        head[draw.randrange(len(head))] = draw.choice(b"\r\n :/\0\xff09aZ%;,")
    return bytes(head + data), changes > 0


def test_class_12_no_request_ends_a_release_build(server):
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    draw = random.Random(seed)
    seeds = [SMALL, {**SMALL, "stream": True, "stream_options": {"include_usage": True}}, {**SMALL, "prompt": [[5, 6, 7], [8]]}, {**SMALL, "n": 2, "logprobs": 3},
             {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "max_tokens": 2}, {**SMALL, "use_beam_search": True, "beam_width": 3, "n": 2},
             {"do": "open", "pages": 8}]
    requests = [mutated(draw, seeds) for _ in range(20000 if LONG else 1500)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = [code for got in pool.map(lambda one: statuses(raw(server, *one)), requests) for code in got]
    assert server.process.poll() is None, seed
    assert not [code for code in codes if code >= 500 and code != 505], (seed, sorted(set(codes)))
    assert codes.count(200) > len(requests) // 50 and codes.count(400) > len(requests) // 50, (seed, len(codes))
    assert post(server, SMALL)[0] == 200 and settled(server)[WORK[-1]] == 0


# ---- 13: a client makes or takes models ----

def test_class_13_no_route_writes_or_hands_out_models(server, home):
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in home.rglob("*")}
    body = {"model": "tiny", "name": "evil", "path": str(home), "source": "http://127.0.0.1:9/x", "lora_name": "x", "lora_path": str(home), "files": {"a": "b"}, "insecure": True}
    paths = ["/api/create", "/api/pull", "/api/push", "/api/copy", "/api/delete", "/api/blobs/sha256:0", "/v1/files", "/v1/fine_tuning/jobs", "/invocations", "/update_weights_from_disk", "/save", "/slots/0?action=save",
             "/collective_rpc", "/v2/repository/models/x/load", "/start_profile", "/release_memory_occupation", "/shutdown"]
    for path in paths:
        for method in ("GET", "POST", "PUT", "DELETE"):
            assert server.ask(method, path, body if method != "GET" else None, key=ALICE)[0] == 404, (method, path)
    for path in ("/models/load", "/sleep", "/wake_up", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/lora-adapters"):  # the operator's
        assert server.ask("POST", path, body, key=ALICE)[0] == 403 and server.ask("PUT", path, body, key=ALICE)[0] == 405, path
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for path in ("/v1/models", "/v1/models/tiny"):
            assert server.ask(method, path, body, key=ALICE)[0] == 405
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in home.rglob("*")} == before
    with open(f"/proc/{server.process.pid}/maps") as f:
        assert not [line for line in f if "okapi" in line and "w" in line.split()[1] and "s" in line.split()[1]]  # weights are not shared for writing


# ---- 14: what a connection held stays after it ----

def abort(server, draw, i):
    """One client that leaves in the middle of something, by a reset or by closing."""
    with socket.create_connection(server.address, 60) as s:
        body = json.dumps({"prompt": "The prince looked " * draw.randrange(1, 30), "max_tokens": 400, "ignore_eos": True, "stream": i % 3 > 0, "n": 1 + (i % 7 == 0),
                           "temperature": 1, "user": "u" * draw.choice([0, 0, 70000])}).encode()
        data = request("POST", "/v1/completions", body, key=ALICE)
        kind = i % 8
        if kind == 0:  # in the head, or before it
            s.sendall(data[:draw.randrange(0, 60)])
        elif kind == 1:  # in the body
            s.sendall(data[:len(data) - draw.randrange(1, len(body))])
        elif kind == 2:  # in a chunk
            s.sendall(CHUNKED + b"%x\r\n" % len(body) + body[:draw.randrange(len(body))])
        elif kind == 3:  # looking at the pool
            s.sendall(request("GET", "/debug/pool", key=ALICE))
            s.recv(100)
        else:
            s.sendall(data)
            if kind > 5 and i % 3 > 0:  # with the answer begun
                s.recv(200)
        if draw.random() < 0.5:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def census(server):
    """Descriptors, pages that are held, requests and connections, when everything has ended."""
    while True:
        text = server.ask("GET", "/metrics", key=ALICE)[2]
        value = {name: float(re.search(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.M)[1])
                 for name in ("quire_pages_held", "quire_http_connections", "vllm:num_requests_running", "vllm:num_requests_waiting")}
        if value == {"quire_pages_held": 0, "quire_http_connections": 1, "vllm:num_requests_running": 0, "vllm:num_requests_waiting": 0}:
            break
    pages = {name: int(re.search(rf"^{name} (\S+)$", text, re.M)[1]) for name in ("quire_pages", "quire_pages_free", "quire_pages_cached")}
    assert pages["quire_pages_free"] + pages["quire_pages_cached"] == pages["quire_pages"]
    fds = []
    for fd in os.listdir(f"/proc/{server.process.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            fds.append(os.readlink(f"/proc/{server.process.pid}/fd/{fd}"))
    return len([fd for fd in fds if not fd.startswith("socket:")]), len(os.listdir(f"/proc/{server.process.pid}/task")), status_kb(server, "VmRSS")


def test_class_14_nothing_stays_of_connections_that_broke_off(quire):
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    s = Server("builtin", "--api-key", ALICE, "--kv-pages", "200", "--max-model-len", "1024")
    draws = [random.Random(seed + i) for i in range(16)]

    def aborts(n):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda t: [abort(s, draws[t], i) for i in range(t, n, 16)], range(16)))
        return census(s)
    try:
        warm = aborts(200)  # what grows once: pages' memory, buffers that are kept
        for _ in range(4):
            fds, threads, kb = aborts(5000 if LONG else 125)
        assert fds == warm[0] and threads < warm[1] + 64, (seed, warm, fds, threads)  # text threads are made as jobs wait in the middle: 64 at most
        assert kb < warm[2] + (32 << 10), (seed, warm, kb)
        state = json.loads(s.ask("GET", "/debug/pool/state", key=ALICE)[2])
        assert state["seqs"] == [] and state["counts"]["seqs"] == 0, state["counts"]
        assert s.metric("quire_http_disconnects_total") > 100  # answers that were under way
        assert s.ask("POST", "/v1/completions", SMALL, key=ALICE)[0] == 200
    finally:
        assert s.stop() == 0


# ---- 15: an expression or template that runs for minutes ----

STEPS, BYTES = "takes more than 20000000 steps", "makes more than 268435456 bytes"
ENDLESS = {
    "loops in loops": ("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", STEPS),
    "loops over the message": ("{% for a in messages[0].content %}{% for b in messages[0].content %}{% for c in messages[0].content %}{% endfor %}{% endfor %}{% endfor %}", None),
    "a text that doubles": ("{% set n = namespace(x=messages[0].content) %}{% for i in range(100) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}", BYTES),
    "a list that doubles": ("{% set n = namespace(x=[1]) %}{% for i in range(100) %}{% set n.x = n.x + n.x %}{% endfor %}", None),
    "a macro that calls itself": ("{% macro m(x) %}{{ m(x + 1) }}{% endmacro %}{{ m(0) }}", None),
    "replacing": ("{% for i in range(100000) %}{{ messages[0].content | replace('a', 'b') }}{% endfor %}", None),
    "concatenation": ("{{ range(1000000000) | join('') }}", None),
    "multiplying": ("{{ 'a' * 10000000000 }}", "a text of 10000000000 times"),
    "powers": ("{{ 9 ** (9 ** 9) }}", "an integer of more than 14336 bits"),
    "outputs inside outputs": ("{% set b = 'a' * 10000 * 1000 %}{% macro m(i) %}{{ b }}{% if i < 100 %}{% set x %}{{ m(i + 1) }}{% endset %}{% endif %}{% endmacro %}{{ m(0) }}", BYTES),
    "texts of two origins": ("{% set n = namespace(x=messages[0].content) %}{% for i in range(100) %}{% set n.x = n.x ~ 'b' ~ n.x %}{% endfor %}", BYTES),
    "runs of origins": ("{% set n = namespace(x=messages[0].content[0] ~ 'b') %}{% for i in range(24) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}", "bytes"),
    "templates inside templates": ("{% include 'default' %}", None),
    "centring": ("{{ 'a'.center(10000000000) }}", None),
}
SLOW = {"loops over the message", "replacing", "outputs inside outputs", "runs of origins", "a list that doubles", "texts of two origins"}  # of make test-long


def test_class_15_integers_of_any_size_within_their_bound_are_an_answer(quire):
    s = Server("builtin", "--api-key", ALICE, "--chat-template", "{{ 9 ** 9 ** 9 == 9 ** 81 }}{{ (9 ** 9 ** 9) | string | length }}")
    try:
        answer = chat(s, "a")
        assert answer[0] == 200, answer
    finally:
        assert s.stop() == 0


@pytest.mark.parametrize("name", [name for name in ENDLESS if LONG or name not in SLOW])
def test_class_15_a_template_without_end_is_given_up_by_steps(quire, name):
    """The text pool's threads are all busy with it, and others are answered; memory stays. Bytes that a render makes are bounded like its steps."""
    template, bound = ENDLESS[name]
    s = Server("builtin", "--api-key", ALICE, "--chat-template", template)
    try:
        before = status_kb(s, "VmRSS")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(chat, s, "a" * 3000, timeout=900) for _ in range(4)]
            assert post(s, SMALL)[0] == 200
            for future in asked:
                status, _, text = future.result()
                assert status in (400, 413) and (bound or "line 1") in json.loads(text)["error"]["message"], text
        assert status_kb(s, "VmHWM") < before + (600 << 10)
    finally:
        assert s.stop() == 0


def test_class_15_texts_that_are_hard_to_cut_are_bounded(server):
    """The tokenizer's patterns on what makes backtracking matchers slow: given up or done, by steps."""
    for text in ("a" * 100_000, " " * 100_000, "\n " * 50_000, "'" * 100_000, "1" * 100_000, "a1" * 50_000, "e" + "\u0301" * 50_000, "\u3042" * 50_000, "\U0001F600\u200d" * 20_000):
        for part in (text, text + "!"):
            assert post(server, {"prompt": part, "max_tokens": 1, "stop": [part[:1000]]})[0] in (200, 400)


# ---- 16: what another tenant cached can be told ----

def test_class_16_a_tenant_cannot_tell_what_another_has_cached(server):
    """By counts, not by time: tokens found, lookups, waits."""
    prompt = "The code of the safe is 4711 and nobody in the house may know it. " * 3

    def cached(key, **more):
        status, _, text = post(server, {"prompt": prompt, "max_tokens": 1, "temperature": 0, "explain": True, **more}, key=key)
        assert status == 200, text
        answer = json.loads(text)
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["usage"]["prompt_tokens"], answer
    _, n, first = cached(ALICE, cache_salt="nobody else's")
    cached(ALICE)
    assert cached(ALICE)[0] == n - 1  # the tenant itself finds all but the last
    for key, more in ((BOB, {}), (BOB, {"cache_salt": "alice"}), (BOB, {"user": "alice"}), (ALICE, {"cache_salt": "bob"})):
        found, _, answer = cached(key, **more)
        if more == {"user": "alice"}:
            assert found == n - 1  # its own of just now
        else:
            assert found == 0, (key, more)
            assert told(answer) == told(first)  # just what anybody gets who is the first


def told(answer):
    """What an answer says of reuse: counts, and what it waited for other than its turn."""
    choice = answer["explain"]["choices"][0]
    return (answer["usage"], choice["reused"], [chunk["tokens"] for chunk in choice["chunks"]], choice["n_chunks"], choice["preempted"]["recomputed_tokens"],
            {wait["cause"] for wait in choice["waits"]} - {"turn"})


def test_class_16_tenants_do_not_wait_for_each_others_prefixes(quire, tmp_path):
    """Two at once with the same long prompt: of one tenant, the second waits and reuses; of two, each computes its own."""
    (tmp_path / "keys").write_text(f"alice:{ALICE}\nbob:{BOB}\n")
    s = Server("builtin", "--api-key-file", str(tmp_path / "keys"), "--chunk", "16", "--threads", "1")
    prompt = "A long secret that both of them happen to know. " * 30

    def both(keys, number):
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "cache_salt": f"round {number}"}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda key: json.loads(post(s, body, key=key)[2]), keys))
        return sum(a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers)
    try:
        assert [both((ALICE, BOB), i) for i in range(8)] == [0] * 8
        assert all(both((ALICE, ALICE), i) > 100 for i in range(8, 12))
    finally:
        assert s.stop() == 0


# ---- 17: the server fetches what a client names ----

def test_class_17_nothing_that_a_request_names_is_fetched(server):
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        port = listener.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))
        listener.settimeout(0)
        datagrams.settimeout(0)
        here = f"127.0.0.1:{port}"
        urls = [f"http://{here}/x.png", f"https://{here}/", f"//{here}/x", f"ftp://{here}/x", f"gopher://{here}/_x", f"redis://{here}/0", f"http://localhost:{port}/", f"http://[::1]:{port}/",
                f"http://0:{port}/", f"tcp://{here}", f"\\\\{here}\\x", f"data:text/html,<img src=http://{here}>"]
        for url in urls:
            parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "image_url", "image_url": url}, {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}},
                     {"type": "video_url", "video_url": {"url": url}}, {"type": "file", "file": {"file_url": url}}, {"type": "text", "text": url}, {"type": "image", "image": url}]
            for part in parts:
                assert chat(server, [part, {"type": "text", "text": "x"}])[0] in (200, 400)
            for field in ("model", "prompt", "user", "lora", "chat_template", "tokenizer", "webhook", "callback_url", "documents", "tools", "web_search_options", "metadata",
                          "kv_transfer_params", "ec_transfer_params", "media_io_kwargs", "response_format"):
                for value in (url, [url], {"url": url, "remote_host": "127.0.0.1", "remote_port": port}):
                    assert post(server, {**SMALL, "max_tokens": 1, field: value})[0] in (200, 400, 404)
            got = statuses(raw(server, request("GET", url.replace("\\", "/"), headers=[f"Referer: {url}", f"X-Forwarded-Host: {here}", f"Forwarded: host={here}"], key=ALICE)))
            assert len(got) == 1 and got[0] in (200, 400, 401, 404), (url, got)  # 200: a URL that ends with / asks this server for its page
        assert statuses(raw(server, f"CONNECT {here} HTTP/1.1\r\nHost: {here}\r\nConnection: close\r\n\r\n".encode()))[0] in (400, 401, 404, 405)
        with pytest.raises(BlockingIOError):
            listener.accept()
        with pytest.raises(BlockingIOError):
            datagrams.recv(1)


# ---- 18: headers of model files whose counts wrap ----

WRAPS = (0, 1, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 62, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1, 2 ** 64 - 32)


def test_class_18_counts_that_wrap_are_refused_with_a_message(quire, home, tmp_path):
    """Every 64-bit number among a file's first ones, at the values where sums and products wrap. tests/file and tests/fuzz do more, under a sanitizer."""
    whole = (home / "okapi-weights.gguf").read_bytes()
    path = tmp_path / "damaged.gguf"
    behind = lambda name, n: whole.index(struct.pack("<Q", len(name)) + name) + 8 + len(name) + n
    places = [8, 16] + [24 + i for i in range(0, 64 if LONG else 8, 4)]  # counts of tensors and of keys; lengths of the first keys and values
    places += [behind(b"tokenizer.ggml." + name, 8) for name in (b"tokens", b"merges", b"token_type")]  # how many items
    places += [behind(b"blk.0.attn_q.weight", n) for n in (4, 12, 24)]  # two dimensions, the offset
    for at, value in itertools.product(places, WRAPS):
        if struct.unpack_from("<Q", whole, at)[0] == value:
            continue
        path.write_bytes(whole[:at] + struct.pack("<Q", value) + whole[at + 8:])
        done = subprocess.run([QUIRE, "inspect", str(path)], capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 1, 2), (at, value, done)
        assert done.returncode == 0 or done.stderr.startswith("quire: "), (at, value, done)
        assert done.returncode != 0 or at > 16 or value < 2, (at, value)
    safetensors = tmp_path / "model"
    for header in ({"a": {"dtype": "F32", "shape": [2 ** 62, 4], "data_offsets": [0, 16]}}, {"a": {"dtype": "F32", "shape": [4], "data_offsets": [2 ** 63, 2 ** 63 + 16]}},
                   {"a": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}}, {"a": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}}):
        for length in (None, 2 ** 63, 2 ** 64 - 1, 2 ** 32):
            shutil.copytree("tests/golden/models/llama", safetensors, dirs_exist_ok=True)
            (safetensors / "model.gguf").unlink(missing_ok=True)
            text = json.dumps(header).encode()
            (safetensors / "model.safetensors").write_bytes(struct.pack("<Q", length or len(text)) + text + b"\0" * 16)
            done = subprocess.run([QUIRE, "inspect", str(safetensors)], capture_output=True, text=True, timeout=60)
            assert done.returncode in (1, 2) and "model.safetensors" in done.stderr, (header, length, done)
