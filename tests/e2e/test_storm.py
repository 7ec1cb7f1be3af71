"""A differential storm: random requests of every kind to a random server with few pages, beside clients that hang up, readers that are late or stall, forks and
rollbacks, and adapters that are evicted, replaced and unloaded meanwhile. Each answer is what a plain server says to the same request asked alone, and nothing is held when all is over. `make test-long` runs more
servers, the model with marks of reasoning among them, and two again as a build with the thread sanitizer (QUIRE_BIN), which the plain server need not be.
STORM_SEED, which a failure prints, runs one server."""
import bisect
import collections
import http.client
import json
import os
import pathlib
import random
import subprocess
import threading
import time

import pytest

import byte_model
import lora_files
import storm_requests
from conftest import KEY, QUIRE, Server
from marked_model import with_marks
from test_reasoning import MARKS, TEMPLATE

LONG = bool(os.environ.get("QUIRE_TEST_LONG"))
N_REQUESTS, N_CLIENTS = (60, 10) if LONG else (20, 6)
SEEDS = [int(os.environ["STORM_SEED"])] if "STORM_SEED" in os.environ else range(1, 31) if LONG else [1, 2]
PLAIN = "build/quire" if os.path.exists("build/quire") else QUIRE
OPERATOR = "k-operator"
COMMON = ["--api-key", KEY, "--operator-key", OPERATOR, "--served-model-name", "m", "--trust-request-attention"]
LORAS = ["one", "two", "three", "activated"]
# Models whose layers keep recurrent states, in bytes. Those of states alone have no tiers.
HYBRIDS, ALONE = ["qwen3-next", "lfm2", "mamba"] + ["falcon_h1", "nemotron_h"] * LONG, ["mamba"]
N_HYBRID = 60 if LONG else 10
BUSY = 429, 503  # the queue is full, or there are no connections: who asks again is answered
Model = collections.namedtuple("Model", "path flags thinks max_len drafts loras")


def write_loras(folder, files, modules, the):
    """Adapters of a model. the: the ids of " the", which many texts have."""
    shapes = lora_files.matrices(files, modules)
    for seed, name in enumerate(LORAS):
        lora_files.write(folder / name, shapes, seed, rank=2 + seed, scale=.3, **({"alora_invocation_tokens": the} if name == "activated" else {}))
    return folder


def with_loras(seed, model, requests):
    """(flags, requests) of which some name an adapter."""
    r = random.Random(f"adapters {seed}")
    n_run, n_loaded = r.randrange(1, 4), r.randrange(2, 4)
    flags = ["--lora-dir", str(model.loras), "--max-loras", str(n_run), "--max-cpu-loras", str(max(n_run, n_loaded))]
    return flags, [(path, body | {"model": r.choice(["m", *LORAS])}) for path, body in requests]


def whole(text):
    """What must be equal in whole answers: all but ids and times."""
    answer = json.loads(text)
    for choice in answer["choices"]:
        for call in (choice.get("message") or {}).get("tool_calls") or []:
            call.pop("id")
    rejected = (answer["usage"].get("completion_tokens_details") or {}).get("rejected_prediction_tokens", 0)
    return answer["choices"], answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"] - rejected


def joined(chunks):
    """{index: what must be equal in a choice} of a stream's chunks, or of a whole answer as the one chunk. A rollback takes text back."""
    out = {}

    def choice_of(index):
        return out.setdefault(index, {"text": "", "reasoning": "", "ids": [], "logprobs": [], "calls": {}, "end": None})
    for chunk in chunks:
        assert "error" not in chunk, chunk
        if "rollback" in (chunk.get("quire") or {}):
            choice_of(chunk["quire"]["index"])["text"] = chunk["quire"]["text"]
        for choice in chunk["choices"]:
            part = choice.get("delta") or choice.get("message") or {}
            x = choice_of(choice["index"])
            x["text"] += choice.get("text") or part.get("content") or ""
            x["reasoning"] += part.get("reasoning") or ""
            x["ids"] += choice.get("token_ids") or []
            marks = choice.get("logprobs") or {}
            x["logprobs"] += marks.get("token_logprobs") or [t["logprob"] for t in marks.get("content") or []]
            for i, call in enumerate(part.get("tool_calls") or []):
                said = x["calls"].setdefault(call.get("index", i), ["", ""])
                own = call.get("function") or call.get("custom") or {}
                said[0] += own.get("name") or ""
                said[1] += own.get("arguments") or own.get("input") or ""
            x["end"] = choice.get("finish_reason") or x["end"]
    return out


class Storm:
    """One server under a storm; wrong: what was not as it should be."""

    def __init__(self, server, seed, requests, expected, model):
        self.server, self.seed, self.requests, self.expected, self.thinks, self.loras = server, seed, requests, expected, model.thinks, model.loras
        self.wrong, self.lock, self.n_compared, self.n_branched, self.n_refused = [], threading.Lock(), 0, 0, 0
        self.left = list(range(len(requests))) * 2
        random.Random(seed).shuffle(self.left)

    def predicted(self, i):
        """Every other chat comes with its answer as its prediction, whole or with some words replaced."""
        path, body = self.requests[i]
        if i % 2 or self.expected[i][0] != 200 or "beam_width" in body or not path.endswith("/chat/completions"):
            return {}
        words = (json.loads(self.expected[i][1])["choices"][0]["message"]["content"] or "").split(" ")
        return {"prediction": {"type": "content", "content": " ".join("other" if i % 4 and k % 7 == 6 else word for k, word in enumerate(words))}}

    def open(self, i, **fields):
        path, body = self.requests[i]
        fields = {**self.predicted(i), **fields}
        connection = http.client.HTTPConnection(*self.server.address, timeout=600)
        connection.request("POST", path, json.dumps({**body, **fields}), {"content-type": "application/json", "authorization": "Bearer " + KEY})
        return connection

    def answered(self, i, **fields):
        """(connection, its answer), which is none that asks to come again."""
        while True:
            connection = self.open(i, **fields)
            answer = connection.getresponse()
            if answer.status not in BUSY:
                return connection, answer
            answer.read()
            connection.close()
            self.n_refused += 1
            time.sleep(.05)

    def note(self, i, what, got, expected):
        with self.lock:
            self.n_compared += 1
            if got != expected:
                self.wrong.append((what, self.requests[i], got, expected))

    def hang_up(self, i, r):
        connection = self.open(i, stream=r.random() < .7)
        if r.random() < .5:
            connection.sock.settimeout(r.choice([.001, .02, .2]))
            try:
                connection.getresponse().read(r.choice([1, 100, 1000]))
            except (OSError, http.client.HTTPException):
                pass
        connection.close()

    def read_stream(self, i, r):
        """Some read slowly, and some nothing at all for a while."""
        (connection, answer), raw, size = self.answered(i, stream=True), b"", r.choice([50, 4000, 65536])
        time.sleep(r.choice([0] * 9 + [2]))
        while part := answer.read1(size):
            raw += part
            time.sleep(r.choice([0] * 40 + [.1]))
        connection.close()
        if answer.status == 400 and b"KV pages" in raw:  # beams that this pool is too small for
            return
        chunks = [json.loads(line[6:]) for line in raw.decode().split("\n") if line.startswith("data: {")]
        assert answer.status == 200, raw
        self.note(i, "stream", joined(chunks), joined([json.loads(self.expected[i][1])]))

    def ask(self, i):
        connection, answer = self.answered(i)
        status, text = answer.status, answer.read().decode()
        connection.close()
        expected_status, expected = self.expected[i]
        if expected_status == 200 and status == 200:
            self.note(i, "whole", whole(text), whole(expected))
        elif not (status == 400 and "KV pages" in text):
            self.note(i, "status", (status, json.loads(text)["error"]["param"]), (expected_status, json.loads(expected)["error"]["param"]))

    def client(self, number):
        r = random.Random(self.seed * 1000 + number)
        while True:
            with self.lock:
                if not self.left:
                    return
                i = self.left.pop()
            body, kind = self.requests[i][1], r.random()
            try:
                if kind < .12:
                    self.hang_up(i, r)
                elif kind < .5 and self.expected[i][0] == 200 and not {"echo", "prompt_logprobs", "best_of"} & body.keys():
                    self.read_stream(i, r)
                else:
                    self.ask(i)
            except Exception as e:  # noqa: BLE001: the test tells of it
                with self.lock:
                    self.wrong.append(("exception", self.requests[i], repr(e), None))

    def branch(self, i, r):
        """Rolls a stream back, or forks it: what it says in the end is what it says without."""
        body = self.requests[i][1]
        (connection, answer), chunks, asked = self.answered(i, stream=True), [], False
        expected = joined([json.loads(self.expected[i][1])])
        prompt = json.loads(self.expected[i][1])["usage"]["prompt_tokens"]
        while line := answer.readline().decode():
            if answer.status == 400 and "KV pages" in line:
                return
            if not line.startswith("data: {"):
                continue
            chunks.append(json.loads(line[6:]))
            if not asked and "id" in chunks[-1]:
                asked = True
                what = {"position": prompt + r.randrange(6), "index": r.randrange(body.get("n", 1))}
                status, _, text = self.server.ask("POST", f"/v1/streams/{chunks[-1]['id']}/{r.choice(['rollback', 'fork'])}", what, timeout=600)
                if status not in (200, 400, 404, 409, 429):
                    self.wrong.append(("branch", self.requests[i], status, text))
        connection.close()
        self.n_branched += 1
        if self.thinks and "messages" in body:  # a rollback shows reasoning and content as one text
            return
        self.note(i, "branched", {k: v["text"] for k, v in joined(chunks).items()}, {k: v["text"] for k, v in expected.items()})

    def brancher(self, over):
        r = random.Random(self.seed + 77)
        able = [i for i, (path, body) in enumerate(self.requests) if self.expected[i][0] == 200 and body["max_tokens"] >= 17 and isinstance(body.get("prompt", ""), str)
                and not {"best_of", "beam_width", "tools", "echo", "prompt_logprobs", "thinking_token_budget", "chat_template_kwargs"} & body.keys()]
        while able and not over.is_set():
            i = r.choice(able)
            try:
                self.branch(i, r)
            except Exception as e:  # noqa: BLE001
                self.wrong.append(("branch exception", self.requests[i], repr(e), None))

    def operator(self, over):
        """Unloads adapters, which the directory then has anew, and replaces them by themselves."""
        r = random.Random(self.seed + 5)
        while not over.wait(.05):
            name = r.choice(LORAS)
            if r.random() < .5:
                status, _, text = self.server.ask("POST", "/v1/unload_lora_adapter", {"lora_name": name}, key=OPERATOR)
            else:
                body = {"lora_name": name, "lora_path": str(self.loras / name), "load_inplace": True}
                status, _, text = self.server.ask("POST", "/v1/load_lora_adapter", body, key=OPERATOR, timeout=600)
            if status not in (200, 404):
                self.wrong.append(("operator", name, status, text))

    def crowd(self):
        """As many samples as the queue takes, of clients that stall and then hang up."""
        body = {"model": "m", "prompt": "the prince", "n": 128, "max_tokens": 100, "ignore_eos": True, "stream": True}
        connections = []
        for _ in range(9):
            connection = http.client.HTTPConnection(*self.server.address, timeout=600)
            connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json", "authorization": "Bearer " + KEY})
            connections.append(connection)
        time.sleep(1)
        for connection in connections:
            connection.close()

    def run(self, has_crowd=False):
        over = threading.Event()
        clients = [threading.Thread(target=self.client, args=(n,)) for n in range(N_CLIENTS)]
        brancher = threading.Thread(target=self.brancher, args=(over,))
        crowd = [threading.Thread(target=self.crowd)] * has_crowd
        operator = [threading.Thread(target=self.operator, args=(over,))] * any(body["model"] in LORAS for _, body in self.requests)
        for thread in [*clients, *crowd, brancher, *operator]:
            thread.start()
        for thread in [*clients, *crowd]:
            thread.join()
        over.set()
        for thread in [brancher, *operator]:
            thread.join()


def least_pages(model, flags, max_len):
    """Pages without which no request of max_len tokens fits."""
    def holds(pages):
        done = subprocess.run([PLAIN, "inspect", str(model), "--json", "--kv-pages", str(pages), "--max-model-len", str(max_len), *flags], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["memory_plan"][0]["full_length_requests"] > 0
    return bisect.bisect_left(range(4096), True, key=holds)


def answers_alone(model, flags, requests):
    """(status, text) of each request to a plain server that has nothing else to do."""
    plain = Server(model.path, *flags, "--prefix-cache", "none", "-t", "1", program=PLAIN)
    answers = []
    for path, body in requests:
        status, _, text = plain.ask("POST", path, body, timeout=600)
        answers.append((status, text))
    assert plain.stop() == 0
    assert sum(status == 200 for status, _ in answers) > len(requests) / 2
    return answers


def weather(model, flags, seed, requests, expected, has_crowd=False):
    """One server's storm: every answer is the plain one, and nothing is held in the end."""
    server = Server(model.path, *flags)
    storm = Storm(server, seed, requests, expected, model)
    storm.run(has_crowd)
    assert not storm.wrong, json.dumps(storm.wrong[:3], default=str)[:4000]
    assert storm.n_compared > len(requests) / 2 and (storm.n_branched > 0 or has_crowd)
    for _ in range(600):
        if server.metric("quire_pages_held") == 0:
            break
        threading.Event().wait(.1)
    assert server.metric("quire_pages_held") == 0
    status, said = server.stop(), "".join(server.said)
    assert status == 0 and "Sanitizer" not in said and "page audit" not in said, said[-8000:]


@pytest.fixture(scope="module")
def models(quire, tmp_path_factory):
    """The built-in one, and in the long form one with marks of reasoning and calls."""
    marked = with_marks(tmp_path_factory.mktemp("storm") / "marked", MARKS, TEMPLATE)[0] if LONG else None
    the = json.loads(pathlib.Path("models/builtin-hf/tokenizer.json").read_text())["model"]["vocab"]["Ġthe"]
    loras = write_loras(tmp_path_factory.mktemp("loras"), pathlib.Path("models/builtin-hf"), "_proj$", [the])
    return [Model("builtin", ["--tool-call-parser", "hermes"], False, 384, "builtin-small", loras)] + [Model(str(marked), [], True, 384, str(marked), loras)] * LONG


@pytest.mark.parametrize("seed", SEEDS)
def test_no_answer_depends_on_what_runs_beside_it(models, seed, tmp_path):
    r = random.Random(seed)
    model = models[seed % len(models)]
    flags = [*COMMON, "--max-model-len", str(model.max_len), *model.flags, *r.choice(storm_requests.NUMERIC)]
    requests = [storm_requests.request(r, model.thinks) for _ in range(N_REQUESTS)]
    tight = storm_requests.tight_server(r, lambda page: -(-model.max_len // page) + 1, model.drafts, tmp_path)
    if seed % 3 < 2:
        loras, requests = with_loras(seed, model, requests)
        flags += loras
    print("STORM_SEED=%d: quire serve %s %s" % (seed, model.path, " ".join(flags + tight)))
    weather(model, flags + tight, seed, requests, answers_alone(model, flags, requests))


@pytest.fixture(scope="module", params=HYBRIDS)
def hybrid(request, quire, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hybrid")
    path, drafts = byte_model.write(folder / request.param, request.param), byte_model.write(folder / "qwen3", "qwen3")
    if path is None or drafts is None:
        pytest.skip("../shared/golden/models is not at hand")
    loras = write_loras(folder / "loras", path, r"_proj(_\w+)?$|\.w[123]$", list(b" the"))
    return Model(path, ["--tool-call-parser", "hermes"], False, 1300, str(drafts), loras)


@pytest.mark.parametrize("seed", SEEDS[:6 if LONG else 1])
def test_no_answer_of_recurrent_layers_depends_on_what_runs_beside_it(hybrid, seed, tmp_path):
    """With a crowd that fills the queue, and a second server that finds what the first one left in its tiers."""
    r = random.Random(f"{hybrid.path.name} {seed}")
    numeric = r.choice(storm_requests.NUMERIC)
    flags = [*COMMON, "--max-model-len", str(hybrid.max_len), *hybrid.flags, *numeric]
    requests = [storm_requests.lettered(r, *storm_requests.request(r, False)) for _ in range(N_HYBRID)]
    tight = storm_requests.tight_server(r, lambda page: least_pages(hybrid.path, ["--page-size", str(page), *numeric[-2:]], hybrid.max_len), hybrid.drafts, tmp_path,
                                        "none" if hybrid.path.name in ALONE else "file" if seed % 2 else "any")
    loras, requests = with_loras(seed, hybrid, requests)
    flags += loras
    print("STORM_SEED=%d: quire serve %s %s" % (seed, hybrid.path, " ".join(flags + tight)))
    expected = answers_alone(hybrid, flags, requests)
    for life in range(2 if "--kv-tier-file" in tight else 1):
        weather(hybrid, flags + tight, seed + life, requests, expected, has_crowd=True)
