"""`quire run --program --api`: programs on another server's API, and speculation over its calls. The API is a stand-in whose next token is a function of the
text before it, and which records what is asked of it."""
import http.server
import json
import os
import random
import subprocess
import threading
import time
import zlib

import pytest

from conftest import QUIRE

SEED = int(os.environ.get("QUIRE_TEST_SEED", 0)) or random.randrange(1, 1 << 31)
LONG = bool(os.environ.get("QUIRE_TEST_LONG"))
VOCABULARY = ["a", "b", "é", ".", ". ", " ", "\n", "ab", ". b", ".\n", "Name: ", "b a", "a."]
STOPS = [".", "\n", " ", "b", ". b", "a.", "zz"]


def next_token(text):
    """None: the end."""
    h = zlib.crc32(text[-6:].encode())
    return None if h % 23 == 0 else VOCABULARY[(h >> 8) % len(VOCABULARY)]


def complete(text, max_tokens, stops, choose):
    """Tokens, text, finish reason."""
    tokens, new = [], ""
    while len(tokens) < max_tokens:
        token = choose(text + new)
        if token is None:
            return tokens, new, "stop"
        tokens.append(token)
        new += token
        ends = [(new.index(s) + len(s), -len(s), s) for s in stops if s in new]
        if ends:
            end, _, stop = min(ends)
            return tokens, new[:end - len(stop)], "stop"
    return tokens, new, "length"


class Api:
    """choose: next_token, or another function of the text. refuse: responses to the first requests. most: the tokens that a request may ask for. gate: a barrier
    that requests wait at."""

    def __init__(self, choose=next_token, has_tokens=True, latency=0.0, refuse=(), gate=None, most=1 << 31):
        self.choose, self.has_tokens, self.latency, self.refuse, self.gate, self.most = choose, has_tokens, latency, list(refuse), gate, most
        self.lock, self.requests = threading.Lock(), []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def answer(self, path, body):
        if path.endswith("/chat/completions"):
            text = "".join(f"<{m['role']}>{m['content']}</>" for m in body["messages"])
            text = text[:-3] if body.get("continue_final_message") else text + "<assistant>"
            return {"choices": [self.choice(0, text, body, True)], "usage": self.usage}
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0}
        return {"choices": [self.choice(i, p, body, False) for i, p in enumerate(prompts)], "usage": self.usage}

    def choice(self, index, text, body, is_chat):
        stops = body.get("stop", [])
        tokens, new, finish = complete(text, body["max_tokens"], [stops] if isinstance(stops, str) else stops, self.choose)
        self.usage = {"prompt_tokens": len(text), "completion_tokens": len(tokens)}
        out = {"index": index, "finish_reason": finish}
        if is_chat:
            content = [{"token": t, "bytes": list(t.encode()), "logprob": 0.0} for t in tokens]
            return {**out, "message": {"role": "assistant", "content": new}, "logprobs": {"content": content} if self.has_tokens else None}
        shown = list(text) + tokens if body.get("echo") else tokens
        starts = [len("".join(shown[:i])) + (0 if body.get("echo") else len(text)) for i in range(len(shown))]
        values = [None] + [-(zlib.crc32((text[:i] + "?").encode()) % 1000) / 100 for i in range(1, len(shown))]
        logprobs = {"tokens": shown, "text_offset": starts, "token_logprobs": values}
        return {**out, "text": (text if body.get("echo") else "") + new, "logprobs": logprobs if "logprobs" in body and (self.has_tokens or body.get("echo")) else None}

    def handler(api):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def reply(self, status, body, **headers):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"Content-Length": len(data), **headers}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.reply(200, {"data": [{"id": "a-model"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with api.lock:
                    api.requests.append((self.path, body, self.headers.get("Authorization")))
                    refusal = api.refuse.pop(0) if api.refuse else (400, {"error": {"message": "too many tokens"}}) if body["max_tokens"] > api.most else None
                    answer = None if refusal else api.answer(self.path, body)
                time.sleep(api.latency)
                if api.gate:
                    api.gate.wait(60)
                if refusal:
                    self.reply(*refusal[:2], **(refusal[2] if len(refusal) > 2 else {}))
                else:
                    self.reply(200, answer)

        return Handler


def run(tmp_path, api, program, *flags, status=0, environment=None):
    path = tmp_path / "program.json"
    path.write_text(json.dumps(program))
    clean = {k: v for k, v in os.environ.items() if k != "OPENAI_API_KEY"}
    done = subprocess.run([QUIRE, "run", "--program", path, "--api", getattr(api, "url", api), *map(str, flags)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env={**clean, **(environment or {})}, timeout=300)
    assert done.returncode == status and "Sanitizer" not in done.stderr, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def random_program(r):
    """Steps whose constant texts are often what the API would go on with, so that guesses agree for a while."""
    count = [0]

    def text():
        return "".join(r.choice(VOCABULARY) for _ in range(r.randint(1, 2)))

    def gen(state):
        """A gen, the state's text after it, and a text for what follows."""
        count[0] += 1
        most, stops = r.choice([1, 2, 3, 6, 12]), r.sample(STOPS, r.randint(1, 2))
        value = complete(state, most, stops, next_token)[1]
        tokens = complete(state, most + 6, [], next_token)[0]
        further = "".join(tokens)[len(value):]
        then = further[:r.randint(1, 4)] if further and r.random() < 0.8 else text()
        return {"gen": f"v{count[0]}", "max_tokens": most, "stop": stops}, state + value, then

    def steps(state, depth):
        out = []
        for _ in range(r.randint(1, 4)):
            what = r.random()
            if depth < 2 and what < 0.15:
                out += [{"fork": [steps(state, depth + 1) for _ in range(r.randint(1, 3))]}, {"join": True}]
            elif what < 0.25:
                count[0] += 1
                out += [text(), {"select": f"v{count[0]}", "choices": r.sample(VOCABULARY, 3)}]
            elif what < 0.3 and count[0] > 0:
                out += [{"repeat": 2, "steps": [text(), gen(state)[0]]}]
            else:
                for _ in range(r.randint(1, 3)):
                    step, state, then = gen(state)
                    out, state = out + [step, then], state + then
        return out

    if r.random() < 0.3:  # a chat, whose turns have several gens
        turns, before = [], ""
        for _ in range(r.randint(1, 3)):
            said, inner = text(), []
            state = before + f"<user>{said}</><assistant>"
            for _ in range(r.randint(1, 3)):
                step, state, then = gen(state)
                inner, state = inner + [step, then], state + then
            before = state + "</>"
            turns += [{"role": "user", "text": said}, {"role": "assistant", "steps": inner}]
        return {"fields": {"temperature": 0}, "steps": turns}
    start = "x" + text()
    return {"fields": {"temperature": 0}, "steps": [start, *steps(start, 0)]}


def test_random_programs_give_what_they_give_without_speculation(quire, tmp_path):
    print("seed", SEED)
    r, saved, reused = random.Random(SEED), 0, 0
    with Api() as api, Api(has_tokens=False) as silent:
        for i in range(1000 if LONG else 50):
            program = random_program(r)
            plain = run(tmp_path, api, program, "--api-speculation", 0)
            guessed = run(tmp_path, api, program, "--api-speculation", r.choice([4, 32, 256]))
            assert guessed["variables"] == plain["variables"], (SEED, i, program)
            assert guessed["api"]["calls"] + guessed["api"]["reused"] == plain["api"]["calls"], (SEED, i, program)
            assert i % 3 > 0 or run(tmp_path, silent, program)["variables"] == plain["variables"], (SEED, i, program)
            saved, reused = saved + plain["api"]["calls"] - guessed["api"]["calls"], reused + guessed["api"]["reused"]
    assert saved == reused > 0


FORM = "Name: Ann\nAge: 30\nCity: Rome\n"
EXTRACTION = {"fields": {"temperature": 0, "max_tokens": 8, "stop": "\n"},
              "steps": ["Ann, 30, lives in Rome.\nName: ", {"gen": "name"}, "\nAge: ", {"gen": "age"}, "\nCity: ", {"gen": "city"}]}


def of_form(form):
    """A model that fills in a form by characters."""
    def choose(text):
        at = text.index("\n") + 1
        done = text[at:]
        return form[len(done)] if form.startswith(done) and len(done) < len(form) else None if form.startswith(done) else "?"
    return choose


def test_a_form_of_three_fields_is_one_call(quire, tmp_path):
    with Api(of_form(FORM), latency=0.2) as api:
        out = run(tmp_path, api, EXTRACTION)
        assert out["variables"] == {"name": "Ann", "age": "30", "city": "Rome"}
        assert len([p for p, *_ in api.requests if p == "/v1/completions"]) == 1
        assert out["api"]["calls"] == 2 and out["api"]["reused"] == 2  # one of them asks which models there are
        assert out["api"]["saved_prompt_tokens"] > 2 * len("Ann, 30, lives in Rome.\nName: ")
        plain = run(tmp_path, api, EXTRACTION, "--api-speculation", 0, "-m", "a-model")
        assert plain["variables"] == out["variables"] and plain["api"]["calls"] == 3
    with Api(of_form("Name: Ann\nYears: 30\n")) as api:  # guessed wrong: as many calls as without
        out = run(tmp_path, api, EXTRACTION, "-m", "a-model")
        assert out["variables"]["name"] == "Ann" and out["api"]["calls"] == 3 and out["api"]["reused"] == 0


def test_an_api_that_gives_no_tokens_is_asked_for_each_gen(quire, tmp_path):
    with Api(has_tokens=False) as api:
        program = {"fields": {"temperature": 0, "max_tokens": 3, "stop": "zz"}, "steps": ["x", {"gen": "a"}, ".", {"gen": "b"}]}
        out = run(tmp_path, api, program, "-m", "m")
        plain = run(tmp_path, api, program, "-m", "m", "--api-speculation", 0)
        assert out["variables"] == plain["variables"] and out["api"]["reused"] == 0 and out["api"]["calls"] - plain["api"]["calls"] in (0, 1)


def test_an_api_that_refuses_to_go_past_a_gen_is_asked_for_each_gen(quire, tmp_path):
    """It knows no log-probabilities, or allows no more tokens: one call more, and none past a gen from then on."""
    with Api(of_form(FORM), most=8) as api:
        out = run(tmp_path, api, EXTRACTION, "-m", "m")
        assert out["errors"] == [] and out["variables"] == {"name": "Ann", "age": "30", "city": "Rome"}
        assert out["api"]["calls"] == 4 and out["api"]["reused"] == 0 and [body["max_tokens"] > 8 for _, body, _ in api.requests] == [True, False, False, False]
    with Api(of_form(FORM), most=7) as api:  # the gen itself is refused
        out = run(tmp_path, api, EXTRACTION, "-m", "m", status=1)
        assert "too many tokens" in out["errors"][0]["message"] and len(api.requests) == 2


@pytest.mark.parametrize("temperature, calls", [(0, 1), (1, 4)])
def test_branches_are_samples_of_their_own(quire, tmp_path, temperature, calls):
    """What came past the gen before the fork is no sample for each of its branches, unless it is the only one."""
    steps = ["\n", {"gen": "a"}, ".", {"gen": "b"}, {"fork": 3, "steps": [".", {"gen": "c"}]}]
    with Api(of_form("aa.bb.cc.dd.ee.ff.")) as api:
        out = run(tmp_path, api, {"fields": {"temperature": temperature, "max_tokens": 8, "stop": "."}, "steps": steps}, "-m", "m")
        assert out["variables"] == {"a": "aa", "b": "bb", "c": ["cc", "cc", "cc"]} and len(api.requests) == calls


def test_branches_are_sent_at_once(quire, tmp_path):
    with Api(gate=threading.Barrier(8)) as api:  # it answers none until it has all
        run(tmp_path, api, {"fields": {"max_tokens": 2}, "steps": ["x", {"fork": 8, "steps": [{"gen": "a"}]}]}, "-m", "m")
        assert len(api.requests) == 8 and all(body["prompt"] == "x" and body["model"] == "m" for _, body, _ in api.requests)


def test_the_key_the_model_and_errors(quire, tmp_path):
    program = {"model": "own", "steps": ["x", {"gen": "a", "max_tokens": 2}]}
    with Api() as api:
        run(tmp_path, api, program, environment={"OPENAI_API_KEY": "k-1"})
        run(tmp_path, api, program, "-m", "other")
        assert [(body["model"], key) for _, body, key in api.requests] == [("own", "Bearer k-1"), ("other", None)]
    with Api(refuse=[(503, b"later", {"Retry-After": 0}), (429, b"{}", {"Retry-After": 0})]) as api:
        assert run(tmp_path, api, program)["api"]["calls"] == 3
    for refusal, said in [((401, {"error": {"message": "no such key"}}), "no such key"), ((200, b"[not json"), "not a JSON object"),
                          ((200, {"choices": []}), "no choices"), ((400, {"error": "max_tokens is odd"}), "max_tokens is odd"),
                          ((200, {"choices": [{"index": 5, "text": "a"}]}), "no choice with index 0"), ((200, b'data: {"choices": []}\n\ndata: [DONE]\n\n'), "not a JSON object"),
                          ((200, b"\x1f\x8b\x08", {"Content-Encoding": "gzip"}), "not a JSON object"), ((200, b"[" * 100000), "not a JSON object"),
                          ((307, b"", {"Location": "http://127.0.0.1:1/v2/completions"}), "redirects to http://127.0.0.1:1/v2/completions")]:
        with Api(refuse=[refusal]) as api:
            out = run(tmp_path, api, program, status=1)
            assert said in out["errors"][0]["message"] and out["variables"] == {"a": None}
    with Api() as api:  # what is refused before it is sent
        for last in ({"gen": "a"}, {"select": "a", "choices": ["b", "c"]}):
            out = run(tmp_path, api, {"model": "m", "steps": ["x", {"tokens": [1]}, last]}, status=1)
            assert "tokens" in out["errors"][0]["message"] and api.requests == []
    many = {"choices": [{"index": i, "text": "a"} for i in range(2000)]}
    with Api(refuse=[(200, many)]) as api:
        assert "2000 choices" in run(tmp_path, api, program, status=1)["errors"][0]["message"]
    odd = {"choices": [{"index": 0, "text": "ab", "finish_reason": "stop", "logprobs": {"text_offset": [-(1 << 63), (1 << 63) - 1]}}],
           "usage": {"prompt_tokens": -(1 << 63), "completion_tokens": (1 << 63) - 1, "prompt_tokens_details": {"cached_tokens": -1}}}
    with Api(refuse=[(200, odd)]) as api:
        out = run(tmp_path, api, {"model": "m", "fields": {"temperature": 0, "max_tokens": 2}, "steps": ["x", {"gen": "a"}, "y", {"gen": "b"}]})
        assert out["variables"]["a"] == "ab" and 0 < out["usage"]["total_tokens"] < 100  # those of b
    assert "127.0.0.1:1" in run(tmp_path, "http://127.0.0.1:1/v1", program, status=1)["errors"][0]["message"]
    assert "must be an address" in run(tmp_path, "example", program, status=2)
    said = run(tmp_path, "http://name:secret@127.0.0.1:1/v1", program, status=2)
    assert "OPENAI_API_KEY" in said and "secret" not in said
    with Api() as api:
        for key in ("k\r\nX-Other: 1", "two words", "k" * 8193):
            said = run(tmp_path, api, program, status=2, environment={"OPENAI_API_KEY": key})
            assert "not a valid key" in said and key not in said and api.requests == []
        run(tmp_path, api, program, environment={"OPENAI_API_KEY": "k" * 4000})
        assert api.requests[-1][2] == "Bearer " + "k" * 4000
    with Api() as api:
        out = run(tmp_path, api, {"steps": [{"tokens": [1, 2]}, {"gen": "a"}]}, "-m", "m", status=1)
        assert "takes text, not token ids" in out["errors"][0]["message"]


@pytest.mark.parametrize("flags", [[], ["--api-speculation", 0]])
def test_another_quire_gives_what_this_one_gives(quire, server, tmp_path, flags):
    program = {"fields": {"temperature": 0, "max_tokens": 20, "stop": ["."]},
               "steps": ["The prince looked at", {"gen": "a"}, ".", {"gen": "b"}, {"fork": [[" and", {"gen": "x"}], [" but", {"gen": "y"}]]}, {"join": True},
                         " He was ", {"select": "s", "choices": ["good", "a bad king", "old"]}]}
    path = tmp_path / "own.json"
    path.write_text(json.dumps(program))
    own = json.loads(subprocess.run([QUIRE, "run", "builtin", "--program", path, "-q"], capture_output=True, text=True, check=True).stdout)
    out = run(tmp_path, server.url + "/v1", program, *flags, environment={"OPENAI_API_KEY": "k-test"})
    assert out["variables"] == own["variables"]
