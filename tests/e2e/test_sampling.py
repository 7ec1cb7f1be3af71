"""Sampling fields through the server: samples of one prompt, log-probabilities, and that penalties and bans do what they say."""
import json
import math

import pytest

from conftest import Server


@pytest.fixture(scope="module")
def server():
    s = Server("builtin", "--served-model-name", "tiny")
    yield s
    assert s.stop() == 0


def complete(server, **body):
    status, _, text = server.ask("POST", "/v1/completions", {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 12, **body}, None, {})
    assert status == 200, text
    return json.loads(text)


def ids_of(answer, choice=0):
    return answer["choices"][choice]["token_ids"]


def test_samples_are_as_alone_and_differ(server):
    both = complete(server, n=4, seed=7, temperature=1.5)
    again = complete(server, n=4, seed=7, temperature=1.5)
    texts = [c["text"] for c in both["choices"]]
    assert texts == [c["text"] for c in again["choices"]]
    assert len(set(texts)) > 1
    assert texts[0] == complete(server, seed=7, temperature=1.5)["choices"][0]["text"]
    assert both["usage"]["prompt_tokens"] == complete(server)["usage"]["prompt_tokens"]
    assert both["usage"]["completion_tokens"] == 4 * 12


def test_the_best_are_the_likeliest(server):
    every = complete(server, n=6, seed=3, temperature=1.5, logprobs=0)
    means = {c["text"]: sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"]) for c in every["choices"]}
    best = complete(server, n=2, best_of=6, seed=3, temperature=1.5)
    assert [c["text"] for c in best["choices"]] == sorted(means, key=means.get, reverse=True)[:2]
    assert [c["index"] for c in best["choices"]] == [0, 1]
    assert all(c["logprobs"] is None for c in best["choices"])


def test_logprobs_of_the_prompt_equal_those_of_producing_it(server):
    answer = complete(server, temperature=0, logprobs=1, return_token_ids=True)
    produced = answer["choices"][0]
    prompt = produced["prompt_token_ids"] + produced["token_ids"]
    echoed = complete(server, prompt=prompt, max_tokens=0, echo=True, logprobs=1)["choices"][0]
    values = echoed["logprobs"]["token_logprobs"]
    assert values[0] is None
    assert values[-12:] == produced["logprobs"]["token_logprobs"]
    assert all(v <= 0 and math.isfinite(v) for v in values[1:])
    answer = complete(server, prompt=prompt, max_tokens=0, echo=True, n=2)
    assert answer["usage"]["completion_tokens"] == 0 and answer["usage"]["total_tokens"] == len(prompt)
    assert [c["finish_reason"] for c in answer["choices"]] == ["length"] * 2
    again = complete(server, prompt=prompt, max_tokens=0, echo=True, logprobs=1)["choices"][0]
    assert again["logprobs"] == echoed["logprobs"]  # though the prompt is in the cache by now


def test_bans_and_biases(server):
    greedy = ids_of(complete(server, temperature=0, return_token_ids=True))
    banned = ids_of(complete(server, temperature=0, return_token_ids=True, logit_bias={str(greedy[0]): -100}))
    assert banned[0] != greedy[0]
    allowed = ids_of(complete(server, temperature=0, return_token_ids=True, allowed_token_ids=[5, 9]))
    assert set(allowed) <= {5, 9}
    once = ids_of(complete(server, temperature=0, return_token_ids=True, no_repeat_ngram_size=1, max_tokens=60))
    assert len(set(once)) == len(once)


def test_bad_words_never_appear(server):
    text = complete(server, temperature=0, max_tokens=60)["choices"][0]["text"]
    word = max(text.split(), key=text.count)
    assert word not in complete(server, temperature=0, max_tokens=60, bad_words=[word])["choices"][0]["text"].split()


@pytest.mark.parametrize("fields", [
    {"typical_p": 0.5}, {"top_n_sigma": 1.0}, {"xtc_probability": 0.5, "xtc_threshold": 0.05}, {"mirostat": 1}, {"mirostat": 2, "mirostat_tau": 3},
    {"dynatemp_range": 0.5}, {"dry_multiplier": 0.8}, {"dry_multiplier": 0.8, "dry_sequence_breakers": ["the", "\n"]},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": -0.3},
], ids=json.dumps)
def test_every_sampler_repeats_under_a_seed(server, fields):
    first = complete(server, seed=11, max_tokens=40, **fields)["choices"][0]["text"]
    assert first == complete(server, seed=11, max_tokens=40, **fields)["choices"][0]["text"]
    assert first


def test_a_request_whose_rules_leave_no_token_is_refused(server):
    body = {"model": "tiny", "prompt": "Once", "max_tokens": 20, "allowed_token_ids": [5], "no_repeat_ngram_size": 2, "temperature": 0}
    status, _, text = server.ask("POST", "/v1/completions", body, None, {})
    assert status == 400 and "no token is left" in json.loads(text)["error"]["message"]
