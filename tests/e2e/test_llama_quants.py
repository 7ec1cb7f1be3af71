"""GGUF files that llama.cpp quantises, every type of llama-quantize: Quire opens each, and its logits are no farther from the exact ones than llama.cpp's.
With QUIRE_TEST_LONG only: `tools/test.sh --long` builds llama.cpp (tools/llama_cpp.sh, some twenty minutes of processor time) and names it in LLAMA_CPP."""
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import QUIRE, SHARED

TOOL = pathlib.Path(__file__).parents[2] / "tools/llama_quants.py"


def test_no_type_is_farther_from_the_exact_logits_than_in_llama_cpp():
    pytest.importorskip("numpy")
    llama = os.environ.get("LLAMA_CPP")
    if not llama:
        pytest.skip("LLAMA_CPP is not set: `tools/test.sh --long` builds llama.cpp below build/ and sets it")
    for need in (pathlib.Path(llama) / "bin/llama-logits", SHARED / "data/text/wiki.test.raw"):
        if not need.exists():
            pytest.skip(f"{need} is not there (build/llama/build.log; QUIRE_SHARED)")
    done = subprocess.run([sys.executable, TOOL, "--llama", llama, "--quire", QUIRE, "--shared", SHARED, "--threads", "1"],
                          capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0 and done.stdout.count("\n") > 35, done.stdout + done.stderr
