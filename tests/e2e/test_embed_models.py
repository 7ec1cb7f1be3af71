"""Embedders of every kind through the program: rows of several inputs at once, against the reference's, from a directory and from GGUF."""
import json
import pathlib
import random
import subprocess

import pytest

from conftest import QUIRE, SHARED

numpy = pytest.importorskip("numpy")

SECONDS = 120
MODELS = pathlib.Path(SHARED) / "golden" / "models"
POOLINGS = ("mean", "cls", "last")  # the rows of pooled.npy, each divided by its length
OVERRIDES = {"gemma3-embedding/model.gguf": ("--override-kv", "gemma-embedding.attention.sliding_window_pattern=int:2")}  # what a GGUF file does not say
NAMES = [f"{name}{form}" for name in ("bert", "roberta", "nomic_bert", "modernbert", "gemma3-embedding", "qwen3-embedding") for form in ("", "/model.gguf")]
TWO_SIDED = {"bert", "roberta", "nomic_bert", "modernbert", "gemma3-embedding"}


def path_of(name):
    path = MODELS / name
    if not MODELS.is_dir():
        pytest.skip(f"no {MODELS}: QUIRE_SHARED names the directory of expected outputs")
    if not path.exists():
        pytest.skip(f"{name}: the reference has none")
    return path


def folder_of(name):
    return MODELS / name.split("/")[0]


def run(path, *arguments):
    arguments += OVERRIDES.get("/".join(path.parts[len(MODELS.parts):]), ())
    return subprocess.run([QUIRE, "run", str(path), "--embed", "-q", "--compute", "f32", "--kv-dtype", "f32", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)


def rows(path, *arguments):
    done = run(path, *arguments)
    assert done.returncode == 0, done.stderr
    return numpy.array([json.loads(line) for line in done.stdout.splitlines()], dtype=numpy.float32)


def comma(ids):
    return ",".join(map(str, ids))


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_the_references(name, tmp_path):
    path = path_of(name)
    ids = json.loads((folder_of(name) / "ids.json").read_text())["prompt"]
    pooled = numpy.load(folder_of(name) / "pooled.npy")
    chance = random.Random(5)
    others = [[chance.randrange(3, 250) for _ in range(chance.randrange(1, 81))] for _ in range(9)]
    inputs = others[:4] + [ids] + others[4:] + [ids]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"input": i}) + "\n" for i in inputs))
    for pooling, expected in zip(POOLINGS, pooled):
        flags = ("--pooling", pooling, "--normalize")
        found = rows(path, *flags, "--prompts", str(tmp_path / "in.jsonl"))
        assert found.shape == (len(inputs), len(expected))
        assert numpy.abs(found[4] - expected).max() < 1e-4, pooling
        for other in (("--max-num-batched-tokens", "96"), ("--page-size", "4", "--threads", "2"), ("--prefix-cache", "none", "--max-num-seqs", "1")):
            assert (rows(path, *flags, "--prompts", str(tmp_path / "in.jsonl"), *other) == found).all(), other
        for k in (0, 4, 7):
            assert (rows(path, *flags, "--ids", comma(inputs[k])) == found[k]).all()
        assert (found[-1] == found[4]).all()


@pytest.mark.parametrize("name", NAMES)
def test_long_inputs_are_computed_at_once_or_in_chunks(name):
    """Longer than a chunk of attention, where the model takes that; what reads both ways names the flag beyond a step's rows."""
    path = path_of(name)
    chance = random.Random(9)
    most = int(json.loads((folder_of(name) / "config.json").read_text()).get("max_position_embeddings", 512))
    ids = [chance.randrange(3, 250) for _ in range(min(most - 8, 600))]
    whole = rows(path, "--pooling", "mean", "--ids", comma(ids), "--max-num-batched-tokens", str(len(ids)))
    assert numpy.isfinite(whole).all()
    short = run(path, "--pooling", "mean", "--ids", comma(ids), "--max-num-batched-tokens", str(len(ids) - 1))
    if name.split("/")[0] in TWO_SIDED:
        assert short.returncode != 0 and "--max-num-batched-tokens" in short.stderr, short.stderr
        assert (rows(path, "--pooling", "mean", "--ids", comma(ids), "--max-num-batched-tokens", "2000", "--chunk", "16") == whole).all()
    else:
        assert (rows(path, "--pooling", "mean", "--ids", comma(ids), "--chunk", "16") == whole).all()


@pytest.mark.parametrize("name", [n for n in NAMES if "/" not in n])
def test_text_is_refused(name):
    path = path_of(name)
    said = subprocess.run([QUIRE, "run", str(path), "-p", "x"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert said.returncode != 0 and "embeddings, not text" in said.stderr, said.stderr
    said = subprocess.run([QUIRE, "logits", str(path), "--ids", "1,2", "--out", "/dev/null"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert said.returncode != 0 and "embeddings, not text" in said.stderr, said.stderr


def test_a_model_without_types_refuses_others_than_0():
    path = path_of("bert")
    flags = ("--pooling", "mean", "--ids", "5,6,7")
    plain = rows(path, *flags)
    assert (rows(path, *flags, "--types", "0,0,0") == plain).all()
    assert numpy.abs(rows(path, *flags, "--types", "0,1,1") - plain).max() > 1e-3
    assert "token type is 2" in run(path, *flags, "--types", "0,1,2").stderr
    assert "no token types" in run(path_of("modernbert"), *flags, "--types", "0,1,1").stderr
