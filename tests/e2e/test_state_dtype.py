"""--state-dtype bf16: recurrent states rounded after each token. What a prompt gives depends on nothing else: not on pages, chunks, the cache, drafts or threads."""
import json
import subprocess

import pytest

from conftest import SHARED, Server

MODELS = ["qwen3-next", "mamba", "mamba2", "lfm2", "recurrent_gemma", "kimi_linear"]
PHRASE = [17, 91, 5, 103, 44, 17, 91, 8]
PROMPT = [(i * 37 + i * i) % 127 for i in range(60)] + PHRASE * 4
WAYS = {
    "pages of 1": ["--page-size", "1"],
    "pages of 64, chunks of 13": ["--page-size", "64", "--chunk", "13"],
    "chunks of 1, one thread": ["--chunk", "1", "--threads", "1"],
    "snapshots": ["--state-snapshot-tokens", "16"],
    "drafts": ["--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": 4})],
}


def models():
    """Those that are at hand, as paths."""
    found = [SHARED / "golden" / where / name for name in MODELS for where in ("models", "models-2026")]
    return [path for path in found if path.exists()]


def name_of(path):
    return path.name


def answers(model, *flags):
    """Those of one prompt twice, and of one that parts from it, with log-probabilities."""
    server = Server(model, "--compute", "f32", "--kv-pages", "2000", "--served-model-name", "m", *flags)
    found = []
    for prompt in (PROMPT, PROMPT, PROMPT[:50] + PHRASE * 4):
        body = {"model": "m", "prompt": prompt, "max_tokens": 16, "temperature": 0, "logprobs": 1, "return_token_ids": True, "ignore_eos": True}
        status, _, text = server.ask("POST", "/v1/completions", body)
        assert status == 200, text
        choice = json.loads(text)["choices"][0]
        found.append((choice["token_ids"], choice["logprobs"]["token_logprobs"]))
    assert server.stop() == 0
    return found


@pytest.mark.parametrize("model", models(), ids=name_of)
def test_answers_are_the_same_in_every_way(quire, model):
    plain = answers(model, "--state-dtype", "bf16", "--prefix-cache", "none")
    assert plain[0] == plain[1]
    for name, flags in WAYS.items():
        assert answers(model, "--state-dtype", "bf16", *flags) == plain, name
    assert answers(model, "--prefix-cache", "none") != plain  # f32 is another numeric configuration


@pytest.mark.parametrize("model", models(), ids=name_of)
def test_a_snapshot_takes_half_the_bytes(quire, model):
    def state_bytes(dtype):
        done = subprocess.run([quire, "inspect", str(model), "--json", "--state-dtype", dtype], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return sum(c["state_bytes"] for c in json.loads(done.stdout)["caches"])
    assert 0 < state_bytes("bf16") <= 0.55 * state_bytes("f32")
