"""Speculation through the server: answers are those without it, to the letter; what was guessed and accepted is counted; bad configurations are named."""
import json
import re
import subprocess

import pytest

from conftest import QUIRE, Server

REPETITIVE = "the cat sat on the mat and the dog sat on the mat and the cat sat on the mat and the dog sat on the"
CONFIGS = {
    "ngram": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1},
    "draft_model": {"method": "draft_model", "model": "builtin-small", "num_speculative_tokens": 4},
    "suffix": {"method": "suffix", "num_speculative_tokens": 8, "suffix_decoding_max_spec_factor": 2},
    "ngram, trees": {"method": "ngram", "num_speculative_tokens": 8, "tree_width": 3, "prompt_lookup_min": 1},
    "suffix, trees": {"method": "suffix", "num_speculative_tokens": 16, "tree_width": 4, "suffix_decoding_max_spec_factor": 8},
    "draft_model, trees": {"method": "draft_model", "model": "builtin-small", "num_speculative_tokens": 6, "tree_width": 2},
}
BODIES = [
    {"temperature": 0},
    {"temperature": 0, "stop": ["and", "mat"]},
    {"temperature": 0, "stop": [" s"], "include_stop_str_in_output": True},
    {"temperature": 0.7, "seed": 5, "logprobs": 3},
    {"temperature": 0.5, "seed": 6, "n": 3, "repetition_penalty": 1.1},
    {"temperature": 0, "min_tokens": 30, "logit_bias": {"0": 3}},
    {"temperature": 0.3, "seed": 8, "top_p": 0.8, "echo": True, "logprobs": 0},
    {"temperature": 0, "allowed_token_ids": [42], "max_tokens": 40},
]


def answers(server):
    out = []
    for round in range(2):  # the second time prompts are in the cache
        for body in BODIES:
            status, _, text = server.ask("POST", "/v1/completions", {"model": "tiny", "prompt": REPETITIVE, "max_tokens": 48, "return_token_ids": True, **body})
            assert status == 200, text
            answer = json.loads(text)
            out.append((answer["choices"], answer["usage"]["completion_tokens"]))
    return out


@pytest.fixture(scope="module")
def expected():
    s = Server("builtin", "--served-model-name", "tiny")
    try:
        assert counter(s, "vllm:spec_decode_num_drafts_total") == 0
        return answers(s)
    finally:
        assert s.stop() == 0


def counter(server, name):
    return sum(int(v) for v in re.findall(rf"^{re.escape(name)}(?:{{.*?}})? (\d+)$", server.ask("GET", "/metrics")[2], re.M))


@pytest.mark.parametrize("method", CONFIGS)
def test_answers_are_those_without(expected, method):
    s = Server("builtin", "--served-model-name", "tiny", "--speculative-config", json.dumps(CONFIGS[method]))
    try:
        for got, wanted in zip(answers(s), expected, strict=True):
            assert got == wanted
        drafts = counter(s, "vllm:spec_decode_num_drafts_total")
        tokens = counter(s, "vllm:spec_decode_num_draft_tokens_total")
        accepted = counter(s, "vllm:spec_decode_num_accepted_tokens_total")
        assert 0 < drafts <= tokens and 0 < accepted < tokens
        assert counter(s, "vllm:spec_decode_num_accepted_tokens_per_pos_total") == accepted
        assert counter(s, "quire_forced_tokens_total") > 0
    finally:
        assert s.stop() == 0


@pytest.mark.parametrize("config,word", [
    ("{", "--speculative-config"),
    ("[]", "object"),
    ('{"method":"psychic"}', "method must be"),
    ("{}", "method is missing"),
    ('{"method":"ngram","num_speculative_tokens":0}', "num_speculative_tokens"),
    ('{"method":"ngram","num_speculative_tokens":33}', "num_speculative_tokens"),
    ('{"method":"ngram","num_speculative_tokens":1e99}', "num_speculative_tokens"),
    ('{"method":"ngram","prompt_lookup_min":5,"prompt_lookup_max":2}', "prompt_lookup_min"),
    ('{"method":"ngram","tree_width":9}', "tree_width"),
    ('{"method":"suffix","suffix_decoding_max_tree_depth":99}', "suffix_decoding_max_tree_depth"),
    ('{"method":"suffix","suffix_decoding_min_token_prob":"x"}', "suffix_decoding_min_token_prob"),
    ('{"method":"draft_model"}', "needs model, the draft model's file"),
    ('{"method":"draft_model","model":"/nowhere.gguf"}', "/nowhere.gguf"),
    ('{"method":"ngram","lookahead":5}', "lookahead"),
    ('{"method":"ngram","model":"x"}', "draft_model"),
    ('{"method":"ngram","rejection_sample_method":"maybe"}', "rejection_sample_method"),
])
def test_bad_configurations_are_named(config, word):
    p = subprocess.run([QUIRE, "run", "builtin", "--speculative-config", config, "-p", "x", "-n", "1"], capture_output=True, text=True)
    assert p.returncode != 0
    assert word in p.stderr


def test_run_and_bench_take_it():
    flags = ["--speculative-config", json.dumps(CONFIGS["ngram"])]
    plain = subprocess.run([QUIRE, "run", "builtin", "-p", REPETITIVE, "-n", "40", "--temp", "0"], capture_output=True, text=True)
    drafted = subprocess.run([QUIRE, "run", "builtin", "-p", REPETITIVE, "-n", "40", "--temp", "0", *flags], capture_output=True, text=True)
    assert plain.returncode == drafted.returncode == 0
    assert plain.stdout == drafted.stdout
    bench = subprocess.run([QUIRE, "bench", "builtin", "--batch", "1", "--context", "32", "-n", "8", "--runs", "1", *flags], capture_output=True, text=True)
    assert bench.returncode == 0, bench.stderr


def test_rejection_sampling_leaves_greedy_answers(expected):
    config = {"method": "draft_model", "model": "builtin-small", "num_speculative_tokens": 4, "rejection_sample_method": "standard"}
    s = Server("builtin", "--served-model-name", "tiny", "--speculative-config", json.dumps(config))
    try:
        got = answers(s)
        for i, body in enumerate(BODIES * 2):
            if body["temperature"] == 0:
                assert got[i] == expected[i]
        assert counter(s, "vllm:spec_decode_num_accepted_tokens_total") > 0
    finally:
        assert s.stop() == 0


def test_a_draft_model_shares_the_memory_of_pages():
    config = json.dumps(CONFIGS["draft_model"])
    s = Server("builtin", "--served-model-name", "tiny", "--kv-pages", "64", "--speculative-config", config)
    try:
        text = " ".join(f"w{i}" for i in range(20))
        body = {"model": "tiny", "prompt": text, "max_tokens": 64, "temperature": 0, "ignore_eos": True}
        assert s.ask("POST", "/v1/completions", body)[0] == 200
        assert counter(s, "vllm:spec_decode_num_drafts_total") > 0
        names = ("pages", "pages_free", "pages_held", "pages_cached", "pages_absent", "page_bytes", "page_bytes_max", "draft_page_bytes")
        n = {name: counter(s, "quire_" + name) for name in names}
        assert n["pages"] == 64 == n["pages_free"] + n["pages_held"] + n["pages_cached"] + n["pages_absent"]
        page = n["page_bytes_max"] // 64
        assert 0 < n["draft_page_bytes"] == n["page_bytes"] - (64 - n["pages_absent"]) * page and n["page_bytes"] <= n["page_bytes_max"]
        state = json.loads(s.ask("GET", "/debug/pool/state", key=None)[2])
        assert state["memory"] == {"bytes": n["page_bytes"], "max_bytes": 64 * page, "draft_bytes": n["draft_page_bytes"], "absent": n["pages_absent"]}
    finally:
        assert s.stop() == 0
    for flags, shared in ((["--speculative-config", config], True), ([], False)):
        p = subprocess.run([QUIRE, "inspect", "builtin", *flags], capture_output=True, text=True)
        assert p.returncode == 0, p.stderr
        assert ("the draft model's pages take of the same memory" in p.stdout) == shared
        assert ("and a draft model (" in p.stdout) == shared


def test_a_draft_model_s_weights_are_part_of_the_memory_of_models():
    """Under --models-memory-bytes there are as many bytes of pages less as it takes; inspect names what is known before it is loaded."""
    config, left = ["--speculative-config", json.dumps(CONFIGS["draft_model"])], []
    for flags in ([], config):
        s = Server("builtin", "--models-memory-bytes", str(1 << 27), *flags)
        left.append(counter(s, "quire_page_bytes_max"))
        assert s.stop() == 0
    inspected = [json.loads(subprocess.run([QUIRE, "inspect", *args, "--json"], capture_output=True, text=True, check=True).stdout)
                 for args in (["builtin-small"], ["builtin", *config])]
    weights = inspected[0]["weight_bytes"]
    assert weights <= left[0] - left[1] < 1 << 27
    assert f"and a draft model ({weights / 1e3:.1f} kB)" in inspected[1]["pool_plan"]
