"""quire-check lora over adapters that were converted to GGUF, on bases of both formats; the numpy reference against the vectors; and llama-server under the
same adapters, where LLAMA_CPP names its build (`tools/test.sh --long`)."""
import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import QUIRE, SHARED

pytest.importorskip("numpy")

SMALL = pathlib.Path(__file__).parents[1] / "golden/lora"
CHECK = pathlib.Path(QUIRE).with_name("quire-check")
sys.path.insert(0, str(SMALL))
import make  # noqa: E402

SETS = [SMALL, SHARED / "golden/lora"]


@pytest.fixture(params=SETS, ids=["small", "shared"])
def vectors(request):
    if not (request.param / "manifest.json").exists():
        pytest.skip(f"no {request.param}: QUIRE_SHARED names the directory of expected outputs")
    return request.param


def test_the_reference_agrees_with_the_vectors(vectors):
    assert make.check(str(vectors)) <= 1e-3


def test_gguf_adapters_and_bases_give_the_same(vectors, tmp_path):
    if not CHECK.exists():
        pytest.skip(f"no {CHECK}")
    n_adapters = len(json.loads((vectors / "manifest.json").read_text()))
    n_bases = len({m["base"] for m in json.loads((vectors / "manifest.json").read_text())})
    n_gguf = make.add_gguf(str(vectors), str(tmp_path / "lora"))
    assert n_gguf > n_adapters / 3
    run = subprocess.run([CHECK, "lora", tmp_path / "lora"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    # each base and each adapter, in its forms, on the base in both
    assert f"lora: {2 * (n_bases + n_adapters + n_gguf)} passed, 0 failed, 0 unsupported" in run.stdout


def test_llama_server_says_the_same_under_the_same_adapters():
    llama = pathlib.Path(os.environ.get("LLAMA_CPP") or "none") / "bin"
    if not (llama / "llama-server").exists():
        pytest.skip("LLAMA_CPP is not set, or has no llama-server: `tools/test.sh --long` builds it below build/ and sets it")
    tool = pathlib.Path(__file__).parents[2] / "tools/lora_bench.py"
    words = ["--preset", "512", "--type", "Q8_0", "--adapters", "6", "--rank", "8", "--rounds", "1", "--prompt", "64", "--tokens", "8", "--json"]
    run = subprocess.run([sys.executable, tool, llama.resolve(), "--quire", QUIRE, *words], capture_output=True, text=True, timeout=1800)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert [line["work"] for line in lines] == ["6 requests, none", "6 requests, one", "6 requests, own", "prompt of 64, one", "first tokens alike"]
    assert all(line["Quire"] > 0 and line["llama-server"] > 0 for line in lines[:4]) and lines[4]["value"] >= 5, lines
