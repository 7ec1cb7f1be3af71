"""Real models whole, from Python packages: Gemma 3 270M in Q4_K_M and all-MiniLM-L6-v2, against the reference's texts, losses and rows. `tools/test.sh --long`
installs the packages below build/ (tools/real_models.sh) and names their directory in REAL_MODELS; nothing of them is part of this repository."""
import json
import math
import os
import pathlib
import re
import subprocess

import bench_lines
import pytest
from conftest import QUIRE, SHARED

numpy = pytest.importorskip("numpy")

REAL = os.environ.get("REAL_MODELS")
GOLDEN = SHARED / "golden/real"
WIKI, SPEC_BENCH = SHARED / "data/text/wiki.test.raw", SHARED / "data/evals/spec_bench/question.jsonl"
SECONDS = 600
EXACT = ("--compute", "f32", "--kv-dtype", "f32")
# The packed products of int8 are not the reference's floats: how far their losses may lie from it.
MODES = {"f32": (1e-3, 1e-5), "int8": (0.3, 0.01)}


def need(path):
    if not path.exists():
        pytest.skip(f"{path} is not at hand: QUIRE_SHARED names the directory of expected outputs and texts")
    return path


def real(name):
    if not REAL:
        pytest.skip("REAL_MODELS is not set: `tools/test.sh --long` installs the real models and sets it")
    path = pathlib.Path(REAL) / name
    if not path.exists():
        pytest.skip(f"{path} is not there: its Python package could not be installed (build/real-models.log)")
    return path


@pytest.fixture(scope="module")
def gemma():
    return real("gemma-3-270m-q4_k_m.gguf")


@pytest.fixture(scope="module")
def golden():
    return json.loads(need(GOLDEN / "gemma3-270m.json").read_text())


def run(*arguments):
    done = subprocess.run([QUIRE, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


def answers(model, directory, lines, *flags):
    prompts, out = directory / "in.jsonl", directory / "out.jsonl"
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out.unlink(missing_ok=True)
    run("run", model, "--prompts", prompts, "--out", out, "--max-model-len", "512", "-q", *flags)
    return [a for a in sorted(map(json.loads, out.read_text().splitlines()), key=lambda a: a["index"])]


def test_prompts_are_the_references_tokens(quire, gemma, golden):
    for case in golden["greedy"]:
        assert json.loads(run("tokenize", gemma, "-p", case["prompt"], "--ids")) == case["ids"], case["prompt"]


def test_greedy_texts_are_the_references(quire, gemma, golden, tmp_path):
    """Each up to the first place where the reference's two best tokens lie close together."""
    cases = golden["greedy"]
    found = answers(gemma, tmp_path, [{"prompt": c["prompt"], "max_tokens": len(c["output"]), "temperature": 0, "ignore_eos": True, "return_token_ids": True} for c in cases], *EXACT)
    assert sum(c["compare_first"] for c in cases) > 150
    for case, answer in zip(cases, found, strict=True):
        n = case["compare_first"]
        assert answer["token_ids"][:n] == case["output"][:n], case["prompt"]
        if n == len(case["output"]):
            assert answer["text"] == case["text"], case["prompt"]


def test_first_logits_are_the_references(quire, gemma, golden, tmp_path):
    for case in golden["greedy"]:
        run("logits", gemma, "--ids", ",".join(map(str, case["ids"])), "--out", tmp_path / "a.npy", *EXACT, "--max-model-len", "512", "-q")
        row = numpy.load(tmp_path / "a.npy")[-1]
        assert max(abs(float(row[token]) - value) for token, value in case["first_top8"]) < 1e-3, case["prompt"]
        assert {int(i) for i in numpy.argsort(-row)[:4]} <= {token for token, _ in case["first_top8"]}


@pytest.mark.parametrize("compute", MODES)
def test_losses_on_a_long_prompt_are_the_references(quire, gemma, golden, tmp_path, compute):
    """2,000 tokens, of which the windows see 512."""
    case, (each, mean) = golden["long_prompt"], MODES[compute]
    ids, out = tmp_path / "ids.json", tmp_path / "losses"
    ids.write_text(json.dumps(case["ids"]))
    printed = run("perplexity", gemma, "--ids-file", ids, "--context", "2000", "--json", "--compute", compute, "--kv-dtype", "f32", "--out", out)
    row = json.loads(printed.splitlines()[0])
    losses = [-float(line.split()[1]) for line in out.read_text().splitlines()]
    assert len(losses) == row["scored"] == len(case["ids"]) - 1
    assert math.isclose(row["mean_loss"], sum(losses) / len(losses), rel_tol=1e-9)
    assert abs(row["mean_loss"] - case["mean_nll"]) < mean
    assert max(abs(a - b) for a, b in zip(losses[::50], case["nll_every_50th"], strict=True)) < each


def test_the_last_logits_of_a_long_prompt_are_the_references(quire, gemma, golden, tmp_path):
    case = golden["long_prompt"]
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(case["ids"]))
    run("logits", gemma, "--ids-file", ids, "--out", tmp_path / "a.npy", *EXACT, "--max-model-len", "2048", "-q")
    row = numpy.load(tmp_path / "a.npy", mmap_mode="r")[len(case["ids"]) - 1]
    assert max(abs(float(row[token]) - value) for token, value in case["last_top8"]) < 1e-3


@pytest.mark.parametrize("compute", MODES)
def test_the_perplexity_is_the_references(quire, gemma, golden, tmp_path, compute):
    case = golden["perplexity"]
    text = tmp_path / "text"
    text.write_text(need(WIKI).read_text(encoding="utf-8")[:case["characters"]], encoding="utf-8")
    printed = run("perplexity", gemma, text, "--context", "1024", "--json", "--compute", compute, "--kv-dtype", "f32")
    row = json.loads(printed.splitlines()[0])
    assert row["scored"] == case["tokens_scored"]
    assert abs(row["mean_loss"] - case["mean_nll"]) < MODES[compute][1]
    assert compute != "f32" or abs(row["perplexity"] - case["ppl"]) < 1e-3


def test_pages_and_one_piece_give_the_same_bits(quire, gemma, golden, tmp_path):
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(golden["long_prompt"]["ids"][:1200]))
    printed = run("perplexity", gemma, "--ids-file", ids, "--context", "1200", "--json", "--kv", "paged,contiguous", "--step", "97")
    rows = [json.loads(line) for line in printed.splitlines()][:2]
    assert [row["bits"] for row in rows] == ["equal", "equal"]


def test_speculation_pays_and_changes_nothing(quire, gemma):
    """The command fails where an output differs from that without guesses."""
    printed = run("bench", "speculation", gemma, "--prompts", need(SPEC_BENCH), "--each", "1", "--max-tokens", "48", "--max-model-len", "2048", "--json")
    rows = {(row["category"], row["method"]): row for row in bench_lines.rows(printed)}
    assert len(rows) == 3 * (13 + 1) and rows["all", "none"]["tokens_per_step"] == 1
    for method in ("ngram", "suffix"):
        row = rows["all", method]
        print(method, row)
        assert row["prompts"] == 13 and row["guessed"] > 100 and row["accepted"] > 20 and row["tokens_per_step"] > 1.1


def test_rows_of_an_embedder_are_the_references(quire, tmp_path):
    model = real("all-MiniLM-L6-v2")
    golden = json.loads(need(GOLDEN / "minilm.json").read_text())
    expected = numpy.array([case["row"] for case in golden["texts"]], dtype=numpy.float32)
    inputs = tmp_path / "in.jsonl"
    inputs.write_text("".join(json.dumps({"input": case["ids"]}) + "\n" for case in golden["texts"]))

    def rows(*flags):
        printed = run("run", model, "--embed", "-q", "--prompts", inputs, *flags)
        return numpy.array([json.loads(line) for line in printed.splitlines()], dtype=numpy.float32)

    found = rows(*EXACT)
    assert found.shape == expected.shape == (20, 384)
    assert numpy.abs(found - expected).max() < golden["tolerance"]
    assert (rows(*EXACT, "--max-num-seqs", "1", "--threads", "1") == found).all()
    packed = rows("--compute", "int8")  # the cosine of two rows of length 1
    assert (packed * expected).sum(axis=1).min() > 0.98
