"""The pairs of settings of test_matrix.py on models whose layers remember otherwise, in ids: a mixture of experts with windows, recurrent states, latents. Each
answer is a plain server's, to the bit of its log-probabilities. Scarce pools hold what one request needs, or three beams, and no more."""
import bisect
import json
import subprocess

import pytest
from conftest import SHARED, Server
from test_matrix import PLAIN, SETTINGS, all_pairs
from together import answers_together

MODELS = ["gpt_oss", "qwen3-next", "deepseek_v3"]
LONGEST, N_OUT = 240, 40
PHRASE = [17, 91, 5, 203, 44, 17, 91, 8]
KINDS = {
    "greedy": {},
    "sampled": {"temperature": 0.9, "top_p": 0.95, "seed": 5},
    "four samples": {"temperature": 1.1, "seed": 6, "n": 4},
    "stopped": {"temperature": 0.7, "seed": 8, "stop_token_ids": [31, 72]},
    "penalised": {"temperature": 0.8, "seed": 9, "repetition_penalty": 1.2, "frequency_penalty": 0.5},
    "beams": {"use_beam_search": True, "beam_width": 3, "n": 2, "length_penalty": 0.8},
    "one id": {"allowed_token_ids": [17]},
    "a long prompt": {"temperature": 0.9, "seed": 10, "prompt": PHRASE * 25},
    "samples of a long prompt": {"temperature": 1.0, "seed": 13, "n": 3, "prompt": PHRASE * 25},
}
ROWS = all_pairs(SETTINGS, 1)


def sizes(row):
    return ["--page-size", row["page"], "--chunk", row["chunk"], "--kv-dtype", row["kv"]]


def least_pages(quire, model, row, n_tokens):
    def holds(pages):
        done = subprocess.run([quire, "inspect", str(model), "--json", "--kv-pages", str(pages), "--max-model-len", str(n_tokens), *sizes(row)],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["memory_plan"][0]["full_length_requests"] > 0
    return bisect.bisect_left(range(2048), True, key=holds)


def start(quire, model, row):
    flags = ["--prefix-cache", row["cache"], "--swap-space", row["swap"] + "M", "--schedule", row["schedule"], "--max-num-seqs", "12",
             "--max-model-len", str(LONGEST), "--compute", "f32", "--served-model-name", "m", *sizes(row)]
    if row["cascade"] == "0":
        flags += ["--disable-cascade-attn"]
    scarce = max(least_pages(quire, model, row, LONGEST), 3 * least_pages(quire, model, row, len(PHRASE) * 4 + N_OUT))
    flags += ["--kv-pages", str(scarce if row["pages"] == "scarce" else 20 * scarce)]
    if row["speculation"] != "none":
        method, _, trees = row["speculation"].partition(" ")
        config = {"method": method, "num_speculative_tokens": 4}
        if trees:
            config.update(num_speculative_tokens=8, tree_width=3)
        if method == "draft_model":
            config["model"] = str(model)
        flags += ["--speculative-config", json.dumps(config)]
    return Server(model, *flags)


def answer(server, kind):
    body = {"model": "m", "prompt": PHRASE * 4, "max_tokens": N_OUT, "temperature": 0, "logprobs": 2, "return_token_ids": True, "ignore_eos": True, **KINDS[kind]}
    status, _, text = server.ask("POST", "/v1/completions", body)
    assert status == 200, (kind, text)
    return [(c["index"], c["token_ids"], c["logprobs"]["token_logprobs"], c["finish_reason"]) for c in json.loads(text)["choices"]]


class Plain:
    """What plain servers of a model answer, one request at a time."""

    def __init__(self, quire, model):
        self.quire, self.model, self.answers, self.preemptions = quire, model, {}, []

    def of(self, kv):
        if kv not in self.answers:
            server = start(self.quire, self.model, {**PLAIN, "kv": kv})
            self.answers[kv] = {kind: answer(server, kind) for kind in KINDS}
            assert server.stop() == 0
        return self.answers[kv]


@pytest.fixture(scope="module", params=MODELS)
def plain(request, quire):
    model = SHARED / "golden/models" / request.param
    if not model.exists():
        pytest.skip(f"{model} is not at hand")
    plain = Plain(quire, model)
    yield plain
    # how often depends on who arrives first
    assert not plain.preemptions or sum(plain.preemptions) > 0, plain.preemptions


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.values()))
def test_every_answer_is_the_plain_one(quire, plain, row):
    expected, server = plain.of(row["kv"]), start(quire, plain.model, row)
    for _ in range(2):  # the second time prefixes are cached, and drafts were seen
        got = answers_together(lambda kind: answer(server, kind), KINDS)
        for kind in KINDS:
            assert got[kind] == expected[kind], kind
    if row["pages"] == "scarce":
        plain.preemptions.append(server.metric(r'vllm:num_preemptions_total\{[^}]*\}'))
    assert server.metric("quire_pages_held") == 0
    assert server.stop() == 0
