"""Nothing that saves time or memory changes an answer, in any combination: every pair of settings meets in some server, every pair of request kinds and
settings in some request, and each answer is that of a plain server, to the bit of its log-probabilities."""
import itertools
import json
import random
import threading

import pytest

from conftest import Server

PLAIN = {"cache": "none", "chunk": "0", "pages": "roomy", "speculation": "none", "page": "16", "swap": "0", "schedule": "fcfs", "cascade": "0", "kv": "f32"}
SETTINGS = {
    "cache": ["none", "page", "token"],
    "chunk": ["0", "1", "13"],
    "pages": ["roomy", "scarce"],  # scarce: running sequences are preempted
    "speculation": ["none", "ngram", "suffix", "draft_model", "ngram trees", "suffix trees", "draft_model trees"],
    "page": ["1", "16", "64"],
    "swap": ["0", "1"],
    "schedule": ["fcfs", "fair", "prefix"],
    "cascade": ["0", "1"],
    "kv": ["f32", "f16", "int8"],  # the one that changes numbers: compared with a plain server of its own
}
PROMPT = "The prince looked at her and the prince looked at her and "
KINDS = {
    "greedy": {},
    "sampled": {"temperature": 0.9, "top_p": 0.95, "seed": 5},
    "four samples": {"temperature": 1.1, "seed": 6, "n": 4},
    "best of four": {"temperature": 1.0, "seed": 7, "n": 2, "best_of": 4},
    "four greedy": {"n": 4},
    "stopped": {"temperature": 0.7, "seed": 8, "stop": [" the", "and"]},
    "penalised": {"temperature": 0.8, "seed": 9, "repetition_penalty": 1.2, "frequency_penalty": 0.5, "no_repeat_ngram_size": 3},
    "beams": {"use_beam_search": True, "beam_width": 3, "n": 2, "length_penalty": 0.8},
    "one id": {"allowed_token_ids": [17]},
    "one id, text alone": {"allowed_token_ids": [17], "logprobs": None},
    "text alone": {"temperature": 0.9, "seed": 11, "logprobs": None},
    "samples alone": {"temperature": 1.1, "seed": 12, "n": 3, "logprobs": None},
    "a long prompt": {"temperature": 0.9, "seed": 10, "prompt": PROMPT * 24},
    "samples of a long prompt": {"temperature": 1.0, "seed": 13, "n": 3, "prompt": PROMPT * 24},
}
PAGES = {"1": 448, "16": 28, "64": 8}  # scarce: of that page size, what one request may take at most, and less than all of these take at once


def all_pairs(settings, seed):
    """Rows that hold every pair of values of two settings: greedily the best of some random rows each time."""
    draw = random.Random(seed)
    left = {((a, x), (b, y)) for a, b in itertools.combinations(settings, 2) for x in settings[a] for y in settings[b]}
    rows = []
    while left:
        one = next(iter(sorted(left)))
        candidates = [{**{k: draw.choice(v) for k, v in settings.items()}, one[0][0]: one[0][1], one[1][0]: one[1][1]} for _ in range(60)]
        covers = [sum((p, q) in left for p, q in itertools.combinations(row.items(), 2)) for row in candidates]
        row = candidates[covers.index(max(covers))]
        left -= set(itertools.combinations(row.items(), 2))
        rows.append(row)
    return rows


ROWS = all_pairs(SETTINGS, 1)
preemptions = []  # of each server that had scarce pages


def start(row):
    flags = ["--prefix-cache", row["cache"], "--chunk", row["chunk"], "--page-size", row["page"], "--swap-space", row["swap"] + "M",
             "--schedule", row["schedule"], "--kv-dtype", row["kv"], "--max-num-seqs", "12", "--max-model-len", "448"]
    if row["cascade"] == "0":
        flags += ["--disable-cascade-attn"]
    if row["pages"] == "scarce":
        flags += ["--kv-pages", str(PAGES[row["page"]])]
    if row["speculation"] != "none":
        method, _, trees = row["speculation"].partition(" ")
        config = {"method": method, "num_speculative_tokens": 4}
        if trees:
            config.update(num_speculative_tokens=8, tree_width=3)
        if method == "draft_model":
            config["model"] = "builtin-small"
        flags += ["--speculative-config", json.dumps(config)]
    return Server("builtin", *flags)


def answer(server, kind):
    body = {"model": "builtin", "prompt": PROMPT, "max_tokens": 40, "temperature": 0, "logprobs": 2, "ignore_eos": True, **KINDS[kind]}
    status, _, text = server.ask("POST", "/v1/completions", body)
    assert status == 200, (kind, text)
    return [{k: c[k] for k in ("index", "text", "logprobs", "finish_reason")} for c in json.loads(text)["choices"]]


@pytest.fixture(scope="module")
def expected(quire):
    """What plain servers answer, one request at a time."""
    answers = {}
    for kv in SETTINGS["kv"]:
        server = start({**PLAIN, "kv": kv})
        answers[kv] = {kind: answer(server, kind) for kind in KINDS}
        assert server.stop() == 0
    return answers


def test_plain_answers_differ_where_they_should(expected):
    texts = [json.dumps(a) for a in expected["f32"].values()]
    assert len(set(texts)) == len(texts)
    assert expected["f32"] != expected["f16"]
    assert len({c["text"] for c in expected["f32"]["four samples"]}) == 4
    assert len({c["text"] for c in expected["f32"]["four greedy"]}) == 1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.values()))
def test_every_answer_is_the_plain_one(expected, row):
    server = start(row)
    got = {}

    def ask(kind):
        got[kind] = answer(server, kind)
    for _ in range(2):  # the second time prefixes are cached, and drafts were seen
        threads = [threading.Thread(target=ask, args=(kind,)) for kind in KINDS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for kind in KINDS:
            assert got.pop(kind) == expected[row["kv"]][kind], kind
    if row["pages"] == "scarce":
        preemptions.append(server.metric(r'vllm:num_preemptions_total\{[^}]*\}'))
    assert server.stop() == 0


def test_sequences_were_preempted():
    """How often depends on who arrives first."""
    assert not preemptions or sum(preemptions) > 0, preemptions


def test_rows_hold_every_pair():
    for a, b in itertools.combinations(SETTINGS, 2):
        for x, y in itertools.product(SETTINGS[a], SETTINGS[b]):
            assert any(row[a] == x and row[b] == y for row in ROWS)
    assert len(ROWS) < 30
