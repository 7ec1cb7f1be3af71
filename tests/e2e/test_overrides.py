"""--override-kv and --hf-overrides: what GGUF files lack makes them right, and what nothing reads or cannot be is refused by name."""
import json
import pathlib
import re
import subprocess

import pytest
from conftest import QUIRE, SHARED, Server

numpy = pytest.importorskip("numpy")

MODELS = SHARED / "golden/models"
SECONDS = 120

# What the GGUF file of a test model lacks: without it, as with it; docs/models.md has the same table.
RIGHT, OTHER, REFUSED = "right", "other", "refused"
LACKING = {
    "mistral": (OTHER, "llama.attention.sliding_window=int:16"),
    "qwen2-window": (OTHER, "qwen2.use_sliding_window=bool:true,qwen2.attention.sliding_window=int:16,qwen2.max_window_layers=int:1"),
    "gemma2-scale": (OTHER, "gemma2.query_pre_attn_scalar=float:14"),
    "gemma3-scale": (OTHER, "gemma3.query_pre_attn_scalar=float:14,gemma3.attention.sliding_window_pattern=int:2"),
    "gpt_oss": (RIGHT, "gpt-oss.rope.scaling.truncate=bool:false,gpt-oss.swiglu_limit=float:7"),
    "starcoder2": (OTHER, "starcoder2.attention.sliding_window=int:16"),
    "llama4": (OTHER, "llama4.attention.chunk_size=int:16,llama4.no_rope_layer_interval=int:2,llama4.floor_scale=int:8,llama4.attn_scale=float:0.3"),
    "qwen3-embedding": (REFUSED, "qwen3.pooling_type=int:3"),
    "mimo_v2_flash": (OTHER, "mimo2.attention.sliding_window=int:17"),
    "gemma3-embedding": (REFUSED, "gemma-embedding.attention.sliding_window_pattern=int:2"),
}


def model(name):
    return next((path for path in (MODELS / name, SHARED / "golden/models-2026" / name) if path.exists()), MODELS / name)


def gguf(name):
    path = model(name) / "model.gguf"
    if not path.exists():
        pytest.skip(f"no {path}: QUIRE_SHARED names the directory of expected outputs")
    return path


def run(*arguments):
    return subprocess.run([QUIRE, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)


def ids_of(name):
    return json.loads((model(name) / "ids.json").read_text())


def comma(ids):
    return ",".join(map(str, ids))


def logits(path, ids, out, *flags):
    said = run("logits", path, "--ids", comma(ids), "--out", out, "--compute", "f32", "--kv-dtype", "f32", *flags)
    assert said.returncode == 0, said.stderr
    return numpy.load(out)


def greedy(path, ids, n, *flags):
    server = Server(path, "--compute", "f32", "--kv-dtype", "f32", *map(str, flags))
    try:
        status, _, text = server.ask("POST", "/v1/completions", {"prompt": ids, "max_tokens": n, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
        assert status == 200, text
        return json.loads(text)["choices"][0]["token_ids"]
    finally:
        server.stop()


def embed(path, ids, *flags):
    return run("run", path, "--embed", "-q", "--compute", "f32", "--kv-dtype", "f32", "--ids", comma(ids), "--normalize", *flags)


def row(path, ids, *flags):
    said = embed(path, ids, *flags)
    assert said.returncode == 0, said.stderr
    return numpy.array(json.loads(said.stdout), dtype=numpy.float32)


@pytest.mark.parametrize("name", LACKING)
def test_a_file_that_lacks_something_is_right_with_it(name, tmp_path):
    path, (without, override) = gguf(name), LACKING[name]
    ids = ids_of(name)
    flags = ("--override-kv", override)
    if "greedy" not in ids:
        expected = numpy.load(model(name) / "pooled.npy")
        assert numpy.abs(row(path, ids["prompt"], "--pooling", "mean", *flags) - expected[0]).max() < 1e-4
        assert numpy.abs(row(path, ids["prompt"], *(() if "pooling" in override else ("--pooling", "last")), *flags) - expected[2]).max() < 1e-4
        said = embed(path, ids["prompt"])
        assert said.returncode != 0 and re.search("sliding_window_pattern is missing|set pooling", said.stderr), said
    else:
        expected = numpy.load(model(name) / "logits.npy")
        length = ("--max-model-len", len(ids["prompt"]) + len(ids["greedy"]))
        assert numpy.abs(logits(path, ids["prompt"], tmp_path / "a.npy", *length, *flags) - expected).max() < 1e-4
        assert greedy(path, ids["prompt"], len(ids["greedy"]), *length, *flags) == ids["greedy"]
        apart = numpy.abs(logits(path, ids["prompt"], tmp_path / "b.npy", *length) - expected).max()
        assert apart < 1e-4 if without == RIGHT else apart > 1e-2, apart


def test_what_gpt_oss_files_do_not_say_is_as_published(tmp_path):
    path, ids = gguf("gpt_oss"), ids_of("gpt_oss")["prompt"]
    expected = numpy.load(MODELS / "gpt_oss/logits.npy")
    for override in ("gpt-oss.rope.scaling.truncate=bool:true", "gpt-oss.swiglu_limit=float:0.1"):
        assert numpy.abs(logits(path, ids, tmp_path / "a.npy", "--override-kv", override) - expected).max() > 1e-3, override


def test_the_page_lists_the_same_overrides():
    listed = dict(re.findall(r"^\| (\S+)/model\.gguf \|[^|]*\| `([^`]+)` \|$", open("docs/models.md").read(), re.M))
    assert listed == {name: override for name, (_, override) in LACKING.items()}


def test_the_checker_takes_them():
    checker = pathlib.Path(QUIRE).parent / "quire-check"
    gguf("mistral")
    if not checker.exists():
        pytest.skip(f"no {checker}: `ninja -C build/debug quire-check` builds one")
    said = subprocess.run([checker, "models", MODELS, "--only", "mistral", "--override-kv", LACKING["mistral"][1]], capture_output=True, text=True, timeout=SECONDS)
    assert said.stdout == "models: 1 passed, 0 failed, 0 unsupported\n", said
    said = subprocess.run([checker, "models", MODELS, "--only", "mistral", "--override-kv", "llama.attention.sliding_window=int:15"], capture_output=True, text=True, timeout=SECONDS)
    assert said.returncode == 1 and "1 failed" in said.stdout, said
