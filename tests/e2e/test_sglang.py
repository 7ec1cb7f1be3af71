"""SGLang's native API: generation whole and streamed, log-probabilities, what clients ask about the server, and SGLang's own front end."""
import http.client
import http.server
import json
import math
import os
import pathlib
import struct
import subprocess
import threading

import pytest

import client_venv
from conftest import KEY, QUIRE, Server

PROMPT = "The prince looked at her and"
GREEDY = {"max_new_tokens": 12, "temperature": 0}


@pytest.fixture(scope="module")
def server(quire):
    s = Server("builtin", "--api-key", KEY, "--served-model-name", "story")
    yield s
    assert s.stop() == 0


def generate(s, status=200, path="/generate", **body):
    got, _, text = s.ask("POST", path, body)
    assert got == status, text
    return json.loads(text)


def sampled(s, text=PROMPT, more=None, **params):
    return generate(s, text=text, sampling_params={**GREEDY, **params}, **(more or {}))


def streamed(s, **body):
    """The events of a stream, but for the last, which says that it has ended."""
    status, headers, text = s.ask("POST", "/generate", {**body, "stream": True})
    assert status == 200 and headers["content-type"].startswith("text/event-stream"), text
    blocks = text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""] and all(b.startswith("data: ") for b in blocks[:-1])
    return [json.loads(b[6:]) for b in blocks[:-2]]


def of_openai(s, **fields):
    status, _, text = s.ask("POST", "/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 12, "return_token_ids": True, **fields})
    assert status == 200, text
    return json.loads(text)


def timeless(x):
    """An answer without what differs from one request to the next."""
    if isinstance(x, list):
        return [timeless(y) for y in x]
    meta = {name: value for name, value in x["meta_info"].items() if name not in ("id", "e2e_latency", "cached_tokens")}
    return {**x, "meta_info": meta}


def test_a_greedy_answer_is_that_of_openais_path(server):
    mine, theirs = sampled(server), of_openai(server)
    choice, meta = theirs["choices"][0], mine["meta_info"]
    assert mine["text"] == choice["text"] and mine["output_ids"] == choice["token_ids"] and list(mine) == ["text", "output_ids", "meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 12} and meta["completion_tokens"] == 12 and meta["weight_version"] == "default"
    assert meta["prompt_tokens"] == len(choice["prompt_token_ids"]) and meta["e2e_latency"] > 0 and meta["id"].startswith("sglang-")
    assert "input_token_logprobs" not in meta
    by_ids = generate(server, input_ids=choice["prompt_token_ids"], sampling_params=GREEDY)
    assert timeless(by_ids) == timeless(mine) and by_ids["meta_info"]["cached_tokens"] > 0


def test_how_an_answer_ended(server):
    whole = sampled(server)
    word, last = whole["text"].split()[2], whole["output_ids"][4]
    stopped = sampled(server, stop=[word])
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": word} and stopped["text"] == whole["text"].split(word)[0]
    kept = sampled(server, stop=[word], no_stop_trim=True)
    assert kept["text"] == stopped["text"] + word
    by_id = sampled(server, stop_token_ids=[last])
    assert by_id["meta_info"]["finish_reason"] == {"type": "stop", "matched": last} and by_id["output_ids"] == whole["output_ids"][:whole["output_ids"].index(last) + 1]
    end = json.load(open("models/builtin-hf/config.json"))["eos_token_id"]
    ended = sampled(server, logit_bias={str(end): 100})
    assert ended["meta_info"]["finish_reason"] == {"type": "stop", "matched": end} and ended["text"] == ""
    default = generate(server, text=PROMPT, sampling_params={"temperature": 0})
    assert default["meta_info"]["completion_tokens"] <= 128 and default["text"].startswith(whole["text"])


@pytest.mark.parametrize("params", [{}, {"stop": ["e"]}, {"n": 2, "temperature": 1, "sampling_seed": 7}, {"stream_interval": 5}])
def test_a_stream_has_all_of_its_text_in_every_piece(server, params):
    body = {"text": [PROMPT, "Once"], "sampling_params": {**GREEDY, **params}, "return_logprob": True, "logprob_start_len": 1, "top_logprobs_num": 1}
    whole, pieces = generate(server, **body), streamed(server, **body)
    assert {p["index"] for p in pieces} == set(range(len(whole)))
    for i, expected in enumerate(whole):
        own = [p for p in pieces if p["index"] == i]
        assert [p["meta_info"]["finish_reason"] for p in own[:-1]] == [None] * (len(own) - 1) and all("e2e_latency" not in p["meta_info"] for p in own[:-1])
        for before, after in zip(own, own[1:]):
            assert after["text"].startswith(before["text"])
            for name in ("output_token_logprobs", "output_top_logprobs"):
                assert after["meta_info"][name][:len(before["meta_info"][name])] == before["meta_info"][name]
        assert sum((p["output_ids"] for p in own), []) == expected["output_ids"]
        assert {**timeless(own[-1]), "output_ids": expected["output_ids"]} == {**timeless(expected), "index": i}
    alone = streamed(server, text=PROMPT, sampling_params=GREEDY)
    assert "index" not in alone[0] and alone[-1]["text"] == sampled(server)["text"]


def test_several_prompts_and_samples_are_an_array(server):
    several = generate(server, text=[PROMPT, "Once"], sampling_params=[GREEDY, GREEDY], rid=["one", "two"])
    assert [a["meta_info"]["id"] for a in several] == ["one", "two"] and several[0]["text"] == sampled(server)["text"]
    assert [a["text"] for a in generate(server, text=[PROMPT], sampling_params=GREEDY)] == [several[0]["text"]]
    samples = generate(server, text=PROMPT, sampling_params={**GREEDY, "n": 3}, rid="r")
    assert [a["text"] for a in samples] == [several[0]["text"]] * 3 and [a["meta_info"]["id"] for a in samples] == ["r_0", "r_1", "r_2"]
    assert generate(server, text=PROMPT, sampling_params=GREEDY, rid="mine")["meta_info"]["id"] == "mine"


def test_log_probabilities_are_those_of_the_logits(server):
    whole = generate(server, text=PROMPT, sampling_params=GREEDY, return_logprob=True, logprob_start_len=0, top_logprobs_num=3, return_text_in_logprobs=True)
    meta = whole["meta_info"]
    theirs = of_openai(server, prompt_logprobs=3, logprobs=3)["choices"][0]
    ids = theirs["prompt_token_ids"]
    assert [t[1] for t in meta["input_token_logprobs"]] == ids and meta["input_token_logprobs"][0][0] is None and meta["input_top_logprobs"][0] is None
    for mine, expected, i in zip(meta["input_token_logprobs"][1:], theirs["prompt_logprobs"][1:], ids[1:]):
        assert mine[0] == expected[str(i)]["logprob"] and mine[2] == expected[str(i)]["decoded_token"]
    for mine, expected in zip(meta["input_top_logprobs"][1:], theirs["prompt_logprobs"][1:]):
        best = sorted(((e["logprob"], int(i)) for i, e in expected.items()), reverse=True)[:3]
        assert [(lp, i) for lp, i, _ in mine] == best
    assert [t[0] for t in meta["output_token_logprobs"]] == theirs["logprobs"]["token_logprobs"] and [t[1] for t in meta["output_token_logprobs"]] == whole["output_ids"]
    assert all(math.isclose(top[0][0], max(t.values())) for top, t in zip(meta["output_top_logprobs"], theirs["logprobs"]["top_logprobs"]))
    for start in range(1, len(ids)):
        some = generate(server, text=PROMPT, sampling_params={**GREEDY, "max_new_tokens": 0}, return_logprob=True, logprob_start_len=start, return_text_in_logprobs=True)["meta_info"]
        assert some["input_token_logprobs"] == meta["input_token_logprobs"][start:] and some["cached_tokens"] == start - 1 and some["output_token_logprobs"] == []
        assert "input_top_logprobs" not in some
    last = sampled(server, more={"return_logprob": True, "top_logprobs_num": 1})["meta_info"]
    assert last["input_token_logprobs"] == [[None, ids[-1], None]] and last["input_top_logprobs"] == [None] and len(last["output_top_logprobs"]) == 12
    none = generate(server, text=PROMPT, sampling_params={"max_new_tokens": 0}, return_logprob=True)["meta_info"]
    assert [t[:2] for t in none["input_token_logprobs"]] == [t[:2] for t in meta["input_token_logprobs"]]


@pytest.mark.parametrize("more", [{}, {"stream": True}])
def test_prompts_with_parameters_of_their_own_are_as_requests_of_their_own(server, more):
    prompts = [PROMPT, "Once", "The town"]
    params = [{"temperature": 0, "max_new_tokens": 4}, {"temperature": 1.5, "sampling_seed": 3, "max_new_tokens": 11, "top_k": 40}, {"temperature": 0, "max_new_tokens": 0}]
    for n in (1, 2):
        alone = [generate(server, text=[p], sampling_params={**s, "n": n}, return_logprob=True) for p, s in zip(prompts, params)]
        expected = [timeless(a) for answers in alone for a in answers]
        body = {"text": prompts, "sampling_params": [{**s, "n": n} for s in params], "return_logprob": True}
        if more:
            last = {p["index"]: p for p in streamed(server, **body)}
            got = [last[i] for i in range(len(expected))]
            assert [(g["text"], g["meta_info"]["output_token_logprobs"], g["meta_info"]["finish_reason"]) for g in got] == [
                (e["text"], e["meta_info"]["output_token_logprobs"], e["meta_info"]["finish_reason"]) for e in expected]
        else:
            got = [timeless(a) for a in generate(server, **body)]
            for g in got + expected:
                g["meta_info"].pop("input_token_logprobs")  # all of them only where no prompt of a request gets tokens
            assert got == expected


@pytest.mark.parametrize("more", [{}, {"top_logprobs_num": 2}])
def test_log_probabilities_of_named_ids(exact, tmp_path, more):
    scores, named = Scores(exact, tmp_path / "rows.npy"), [263, 12, 5]
    body = {"text": PROMPT, "sampling_params": GREEDY, "return_logprob": True, "logprob_start_len": 2, "token_ids_logprob": named, "return_text_in_logprobs": True, **more}
    answer = generate(exact, **body)
    meta, ids = answer["meta_info"], scores.ids(PROMPT)
    plain = generate(exact, **{name: value for name, value in body.items() if name != "token_ids_logprob"})
    assert plain["text"] == answer["text"] and all(meta[name] == value for name, value in plain["meta_info"].items() if name not in ("id", "e2e_latency", "cached_tokens"))
    assert len(meta["input_token_ids_logprobs"]) == len(ids) - 2 and len(meta["output_token_ids_logprobs"]) == 12
    positions, rows = meta["input_token_ids_logprobs"] + meta["output_token_ids_logprobs"], scores.rows(ids + answer["output_ids"])[1:]
    assert len(positions) == len(rows)
    for position, row in zip(positions, rows):
        assert [i for _, i, _ in position] == named and all(abs(value - row[i]) < 1e-5 for value, i, _ in position)
    assert streamed(exact, **body)[-1]["meta_info"]["output_token_ids_logprobs"] == meta["output_token_ids_logprobs"]
    first = generate(exact, **{**body, "logprob_start_len": 0})["meta_info"]["input_token_ids_logprobs"]
    assert first[0] is None and first[2:] == meta["input_token_ids_logprobs"]


def test_no_tokens_computes_the_prompt_for_the_next(server):
    text = "A prefix that nobody has asked for before"
    empty = generate(server, text=text, sampling_params={"max_new_tokens": 0})
    assert empty["text"] == "" and empty["output_ids"] == [] and empty["meta_info"]["finish_reason"] == {"type": "length", "length": 0}
    assert empty["meta_info"]["completion_tokens"] == 0 and empty["meta_info"]["cached_tokens"] <= 1
    after = generate(server, text=text + ", and then", sampling_params=GREEDY)
    assert after["meta_info"]["cached_tokens"] >= empty["meta_info"]["prompt_tokens"] - 2


@pytest.mark.parametrize("params, valid", [({"regex": "[ab]{3}"}, lambda t: len(t) == 3 and set(t) <= set("ab")),
                                           ({"json_schema": json.dumps({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]})},
                                            lambda t: json.loads(t)["a"] in (1, 2)),
                                           ({"ebnf": 'root ::= "yes" | "no"'}, lambda t: t in ("yes", "no")),
                                           ({"structural_tag": json.dumps({"type": "structural_tag", "format": {"type": "regex", "pattern": "[xy]z"}})}, lambda t: t in ("xz", "yz"))])
def test_rules(server, params, valid):
    assert valid(sampled(server, max_new_tokens=60, **params)["text"])


def test_the_server_describes_itself(server):
    for path in ("/get_model_info", "/model_info"):
        status, _, text = server.ask("GET", path)
        assert status == 200 and json.loads(text) == {"model_path": "story", "tokenizer_path": "story", "is_generation": True, "preferred_sampling_params": None, "weight_version": "default"}
    for path in ("/get_server_info", "/server_info"):
        info = json.loads(server.ask("GET", path)[2])
        assert info["served_model_name"] == "story" and info["context_length"] == 2048 and info["version"] == "0.5.2" and info["max_total_num_tokens"] > 2048
    status, _, text = server.ask("GET", "/health_generate")
    assert status == 200 and json.loads(text)["meta_info"]["completion_tokens"] == 1
    for method, path in (("GET", "/get_model_info"), ("GET", "/server_info"), ("GET", "/health_generate"), ("POST", "/generate"), ("POST", "/encode")):
        assert server.ask(method, path, {"text": "a"} if method == "POST" else None, key="wrong")[0] == 401, path


def test_what_is_not_run_is_refused_by_name(server):
    for path in ("/start_profile", "/stop_profile", "/concate_and_append_request", "/open_session"):
        status, _, text = server.ask("POST", path, {})
        assert status == 404 and path in json.loads(text)["error"]["message"] and "is not served here" in text
    for body, name in (({"image_data": "a.png"}, "image_data"), ({"sampling_params": {"wings": 1}}, "sampling_params.wings"), ({"lora_path": "nobody"}, "nobody")):
        got = server.ask("POST", "/generate", {"text": "a", **body})
        assert got[0] in (400, 404) and name in json.loads(got[2])["error"]["message"], got
    for body in (b"", b"[]", b"{", b'{"text":null}', b'{"text":"a","sampling_params":[]}', b'{"text":"a","sampling_params":{"stop":[1]}}', b'{"text":["a",{}]}'):
        c = http.client.HTTPConnection(*server.address, timeout=60)
        c.request("POST", "/generate", body, {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
        answer = c.getresponse()
        assert answer.status == 400 and json.loads(answer.read())["error"]["message"], body
        c.close()


def test_a_stream_that_fails_before_it_begins_has_a_status(server):
    status, _, text = server.ask("POST", "/generate", {"text": "a " * 5000, "stream": True})
    assert status == 400 and "text" == json.loads(text)["error"]["param"]


def test_embeddings_are_those_of_openais_path(server):
    texts = ["Once upon a time", "The end."]
    rows = [d["embedding"] for d in json.loads(server.ask("POST", "/v1/embeddings", {"input": texts, "pooling": "mean"})[2])["data"]]
    several = generate(server, path="/encode", text=texts, pooling="mean", rid=["a", "b"])
    assert [a["embedding"] for a in several] == rows and [a["meta_info"]["id"] for a in several] == ["a", "b"]
    one = generate(server, path="/encode", text=texts[0], pooling="mean")
    assert one["embedding"] == rows[0] and one["meta_info"]["prompt_tokens"] > 0
    assert server.ask("POST", "/encode", {"text": "a"})[0] == 400, "the model names no pooling"


def test_a_request_is_aborted_by_its_name():
    s = Server("builtin", "--max-model-len", "131072", "--num-gpu-blocks-override", "20000", "--api-key", KEY, "--api-key", "other")
    endless = {"text": "Once", "sampling_params": {"max_new_tokens": None, "ignore_eos": True}, "stream": True}
    opened = []
    for name, key in (("mine", KEY), ("other", KEY), ("mine", "other")):
        c = http.client.HTTPConnection(*s.address, timeout=60)
        c.request("POST", "/generate", json.dumps({**endless, "rid": name}), {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
        answer = c.getresponse()
        assert answer.status == 200 and json.loads(answer.readline()[6:])["meta_info"]["id"] == name
        opened.append((c, answer))
    assert s.ask("POST", "/abort_request", {"rid": "nobody"})[0] == 200 and s.ask("POST", "/abort_request", {})[0] == 400
    assert s.ask("POST", "/abort_request", {"rid": "mine"})[0] == 200
    rest = opened[0][1].read().decode()
    assert "the client aborted this request" in rest and rest.endswith("data: [DONE]\n\n")
    assert opened[1][1].readline() and opened[2][1].readline(), "others go on"
    whole = []
    waits = threading.Thread(target=lambda: whole.append(s.ask("POST", "/generate", {**endless, "stream": False, "rid": "whole"})))
    waits.start()
    while waits.is_alive():  # until the request is there to be aborted
        assert s.ask("POST", "/abort_request", {"rid": "whole"})[0] == 200
    assert whole[0][0] == 410 and json.loads(whole[0][2])["error"]["code"] == "request_cancelled"
    assert s.ask("POST", "/abort_request", {"abort_all": True})[0] == 200
    assert "aborted" in opened[1][1].read().decode()
    assert opened[2][1].readline() and s.ask("POST", "/abort_request", {"abort_all": True}, key="other")[0] == 200
    assert "aborted" in opened[2][1].read().decode()
    for c, _ in opened:
        c.close()
    assert s.stop() == 0


def test_the_cache_is_flushed_of_a_tenant_and_by_the_operator(quire):
    s = Server("builtin", "--operator-key", "operator", "--api-key", KEY, "--api-key", "another")
    body = {"text": "A text that is long enough for a page of tokens, and for some more of them.", "sampling_params": {"max_new_tokens": 0}}
    generate(s, **body)
    assert generate(s, **body)["meta_info"]["cached_tokens"] > 16
    assert s.ask("POST", "/flush_cache", key="another")[0] == 200 and s.ask("GET", "/flush_cache", key="wrong")[0] == 401
    assert generate(s, **body)["meta_info"]["cached_tokens"] > 16, "another tenant's flush"
    assert s.ask("POST", "/flush_cache")[0] == 200
    assert generate(s, **body)["meta_info"]["cached_tokens"] == 0 and generate(s, **body)["meta_info"]["cached_tokens"] > 16
    for method in ("GET", "POST"):
        assert s.ask(method, "/flush_cache", key="operator")[0] == 200
        assert generate(s, **body)["meta_info"]["cached_tokens"] == 0 and generate(s, **body)["meta_info"]["cached_tokens"] > 16
    assert s.stop() == 0
    s = Server("builtin")
    for site, status in (("cross-site", 403), ("same-origin", 200)):
        c = http.client.HTTPConnection(*s.address, timeout=60)
        c.request("GET", "/flush_cache", headers={"Sec-Fetch-Site": site})
        assert c.getresponse().status == status, "a page of another site cannot do it"
        c.close()
    assert s.stop() == 0


# ---- SGLang's own front end: its requests, as they were recorded, and the package itself ----

RECORDED = pathlib.Path(__file__).with_name("sglang_requests.json")  # what sglang_programs.py sent, under sglang 0.5.2
PACKAGES = ["sglang==0.5.2", "pybase64==1.5.1"]
NEEDED = ["aiohttp==3.14.5", "ipython==9.18.1", "numpy==2.4.6", "pydantic==2.14.4", "requests==2.34.2", "tqdm==4.70.1"]
EXACT = ["--compute", "f32", "--kv-dtype", "f32"]
COMPLETION = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens"}
OURS = {"stop", "stop_token_ids", "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "ignore_eos", "regex", "json_schema",
        "skip_special_tokens", *COMPLETION}


@pytest.fixture(scope="module")
def exact(quire):
    s = Server("builtin", *EXACT, "--served-model-name", "story")
    yield s
    assert s.stop() == 0


def log_sum(row):
    best = max(row)
    return best + math.log(math.fsum(math.exp(x - best) for x in row))


class Scores:
    """Log-probabilities of the tokens of texts, by the formula from the rows of `quire logits`."""

    def __init__(self, server, path):
        self.server, self.path, self.known = server, path, {}

    def ids(self, text):
        return json.loads(self.server.ask("POST", "/tokenize", {"prompt": text})[2])["tokens"]

    def rows(self, ids):
        """The log-probabilities of all tokens after each of the ids but the last."""
        key = tuple(ids)
        if key not in self.known:
            done = subprocess.run([QUIRE, "logits", "builtin", "--ids", ",".join(map(str, ids)), "--out", self.path, *EXACT, "-q"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            data = self.path.read_bytes()
            n_head = 10 + struct.unpack_from("<H", data, 8)[0]
            width = (len(data) - n_head) // 4 // len(ids)
            rows = [struct.unpack_from(f"<{width}f", data, n_head + 4 * width * i) for i in range(len(ids) - 1)]
            self.known[key] = [[x - whole for x in row] for row, whole in ((row, log_sum(row)) for row in rows)]
        return self.known[key]

    def of(self, ids):
        """One for each token but the first, which has None."""
        return [None] + [row[i] for row, i in zip(self.rows(ids), ids[1:])]


def mean(values):
    return math.fsum(values) / len(values)


def by_length(lists):
    return [mean(values) for values in lists]


def by_tokens(lists):
    """Token by token, those with the best one stay; behind its end a choice has its mean."""
    left = list(range(len(lists)))
    for k in range(max(map(len, lists))):
        here = [lists[i][k] if k < len(lists[i]) else mean(lists[i]) for i in left]
        left = [i for i, value in zip(left, here) if value == max(here)]
    return [float(i == left[0]) for i in range(len(lists))]


def by_surprise(lists, alone):
    return [mean([a - (b or 0) for a, b in zip(values, others)]) for values, others in zip(lists, alone)]


def chosen(scores, prompt, choices):
    """The choice of each method: from two tokens before the prompt's end on, in case that the choice changes the prompt's last token."""
    start = max(len(scores.ids(prompt)) - 2, 0)
    whole = [scores.ids(prompt + c) for c in choices]
    lists = [scores.of(ids)[start:] for ids in whole]
    alone = [scores.of(ids[start:]) for ids in whole]
    best = {"token_length": by_length(lists), "greedy": by_tokens(lists), "unconditional": by_surprise(lists, alone)}
    return {name: (choices[values.index(max(values))], values) for name, values in best.items()}


def check_answer(server, scores, body, answer):
    """An answer of /generate: its text is that of /v1/completions, and its log-probabilities are those of the logits."""
    params, many = body["sampling_params"], isinstance(body.get("text", body.get("input_ids")), list) and not isinstance(body.get("input_ids", [[]])[0], int)
    prompts, answers = (body.get("text") or body["input_ids"], answer) if many else ([body.get("text") or body["input_ids"]], [answer])
    assert set(params) <= OURS | {"n", "spaces_between_special_tokens"} and len(prompts) == len(answers)
    for prompt, a in zip(prompts, answers):
        meta = a["meta_info"]
        if params.get("max_new_tokens") != 0:
            fields = {COMPLETION.get(name, name): value for name, value in params.items() if name in OURS and value is not None}
            status, _, text = server.ask("POST", "/v1/completions", {"prompt": prompt, "return_token_ids": True, **fields})
            assert status == 200, text
            [theirs] = json.loads(text)["choices"]
            assert a["text"] == theirs["text"] and theirs["finish_reason"] == meta["finish_reason"]["type"]
        if body.get("return_logprob"):
            ids = scores.ids(prompt) if isinstance(prompt, str) else prompt
            start = body.get("logprob_start_len") or 0
            mine, theirs = meta["input_token_logprobs"], scores.of(ids)[start:]
            assert [t[1] for t in mine] == ids[start:] and all((t[2] is not None) == body.get("return_text_in_logprobs", False) for t in mine)
            assert all((a[0] is None and b is None) or abs(a[0] - b) < 1e-5 for a, b in zip(mine, theirs))


def test_recorded_requests_of_sglangs_front_end(exact, tmp_path):
    scores, n = Scores(exact, tmp_path / "rows.npy"), 0
    selects = []
    for method, path, body in json.loads(RECORDED.read_text()):
        if path == "/generate" and body.get("stream"):
            whole = generate(exact, **{**body, "stream": False})
            pieces = streamed(exact, **{name: value for name, value in body.items() if name != "stream"})
            assert pieces[-1]["text"] == whole["text"] and all(b["text"].startswith(a["text"]) for a, b in zip(pieces, pieces[1:]))
        elif path == "/generate":
            answer = generate(exact, **body)
            check_answer(exact, scores, body, answer)
            selects += [(body, answer)] if body.get("return_logprob") and isinstance(body.get("text"), list) else []
            n += 1
        else:
            status = exact.ask(method, path, body)[0]
            assert status == (404 if path in ("/start_profile", "/concate_and_append_request") else 200), path
    assert n > 40 and len(selects) >= 5
    for body, answer in selects:  # what is chosen by the server's numbers is chosen by the logits'
        lists = [[t[0] for t in a["meta_info"]["input_token_logprobs"]] for a in answer]
        theirs = [scores.of(scores.ids(text))[body["logprob_start_len"]:] for text in body["text"]]
        for method in (by_length, by_tokens):
            mine, expected = method(lists), method(theirs)
            assert mine.index(max(mine)) == expected.index(max(expected)) and all(abs(a - b) < 1e-5 for a, b in zip(mine, expected))


class Recorder(http.server.BaseHTTPRequestHandler):
    """Sends requests on to the server, and keeps them."""
    protocol_version = "HTTP/1.1"

    def go(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.command, self.path, json.loads(body) if body else None))
        c = http.client.HTTPConnection(*self.server.to, timeout=60)
        c.request(self.command, self.path, body, {"Content-Type": "application/json"})
        answer = c.getresponse()
        data = answer.read()
        c.close()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"] or "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = go

    def log_message(self, *_):
        pass


def shape(request):
    """What a request is like, whatever its texts are."""
    method, path, body = request
    body = body or {}
    return method, path, tuple(sorted((name, type(value).__name__) for name, value in body.items())), tuple(sorted(body.get("sampling_params", {})))


@pytest.mark.skipif(os.environ.get("QUIRE_TEST_LONG") != "1", reason="of make test-long")
def test_sglangs_front_end_runs_unmodified(exact, tmp_path):
    python = client_venv.python("sglang", *NEEDED, alone=PACKAGES)
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    proxy.seen, proxy.to = [], exact.address
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    script = pathlib.Path(__file__).with_name("sglang_programs.py").resolve()
    done = subprocess.run([os.path.abspath(python), script, f"http://127.0.0.1:{proxy.server_port}", KEY], capture_output=True, text=True, timeout=600, cwd=tmp_path,
                          env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"})
    proxy.shutdown()
    assert done.returncode == 0 and "Error" not in done.stderr, done.stdout[-2000:] + done.stderr[-4000:]
    out, recorded = json.loads(done.stdout), json.loads(RECORDED.read_text())
    kept = tmp_path / "sglang_requests.json"
    kept.write_text("[\n" + ",\n".join(map(json.dumps, proxy.seen)) + "\n]\n")
    assert {shape(r) for r in proxy.seen} == {shape(r) for r in recorded}, f"copy {kept} to {RECORDED}"

    scores = Scores(exact, tmp_path / "rows.npy")
    for method, path, body in proxy.seen:
        if path == "/generate" and not body.get("stream"):
            check_answer(exact, scores, body, generate(exact, **body))
    for name in ("token_length", "greedy", "unconditional"):
        meta = out["select_" + name]["meta"]["answer"]
        prompt = out["select_" + name]["text"].split(out["select_" + name]["variables"]["answer"])[0]
        choice, values = chosen(scores, prompt, [" the prince", " the old man", " of", " Paris"])[name]
        assert out["select_" + name]["variables"]["answer"] == choice
        shown = {"token_length": "normalized_prompt_logprobs", "unconditional": "normalized_unconditional_prompt_logprobs"}.get(name)
        assert shown is None or all(abs(a - b) < 1e-5 for a, b in zip(meta[shown], values))
    assert out["healed"]["variables"]["end"] == chosen(scores, "The capital of France is the town of Par", ["is", "rot", "ty"])["token_length"][0]
    json.loads(out["json"]["variables"]["json_output"])
    assert out["schema"]["variables"]["object"] and set(json.loads(out["schema"]["variables"]["object"])) == {"good"}
    assert int(out["typed"]["variables"]["number"]) is not None and out["typed"]["variables"]["truth"] in ("True", "False")
    assert "".join(out["streaming"]["pieces"]) == out["streaming"]["text"] == out["multi_turn"]["text"]
    assert out["logprobs"]["meta"]["word"]["input_token_logprobs"][0][0] < 0 and out["model"] == "story"
    assert all("is not served here" in text for text in out["refused"]) and len(out["refused"]) == 2
    assert len(out["self_consistency"]["variables"]["answer"]) == 3 and len(out["batch"]) == 2
