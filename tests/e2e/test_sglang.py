"""SGLang's native API: generation whole and streamed, log-probabilities, what clients ask about the server, and SGLang's own front end."""
import http.client
import json
import math
import subprocess

import pytest

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


def logits(text, tmp_path):
    """The rows of `quire logits`: one a token of the text."""
    numpy = pytest.importorskip("numpy")
    out = tmp_path / f"{abs(hash(text))}.npy"
    done = subprocess.run([QUIRE, "logits", "builtin", "--prompt", text, "-o", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return numpy.load(out)


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
