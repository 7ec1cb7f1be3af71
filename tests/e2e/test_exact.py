"""The one rule, from outside: a row of logits has the same bytes however the work was cut up, whatever ran beside it, and on every instruction set."""
import itertools
import json
import os
import pathlib
import random
import subprocess

import pytest

from conftest import QUIRE, SHARED

LONG = bool(os.environ.get("QUIRE_TEST_LONG"))
PAGES, CHUNKS, THREADS = (1, 4, 16, 64), (1, 3, 16, 0), (1, 2)
N_TOKENS = 300  # past one attention chunk of 256 positions

MODELS = {
    "builtin": ("builtin", 2048),                                             # Q8_0
    "hf-bf16": (pathlib.Path("tests/golden/models/llama"), 256),                         # BF16
    "hf-f32": (pathlib.Path("tests/golden/models/llama-rope-llama3"), 256),              # F32, scaled rotary
    "gguf-f32": (SHARED / "data/models/stories260K/stories260K.gguf", 512),   # F32, grouped queries
}


class Case:
    """A model, a random prompt, seven random strangers, and where the logits go."""

    def __init__(self, name, directory):
        self.model, n_vocab = MODELS[name]
        if name != "builtin" and not self.model.exists():
            pytest.skip(f"{self.model} is not at hand")
        self.seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {self.seed}")
        draw = random.Random(self.seed)
        n = min(N_TOKENS, 240 if name.startswith("hf") else N_TOKENS)
        self.ids = [draw.randrange(n_vocab) for _ in range(n)]
        strangers = [[draw.randrange(n_vocab) for _ in range(draw.randrange(1, 150))] for _ in range(7)]
        self.directory = directory
        self.ids_file, self.strangers_file = directory / "ids.json", directory / "strangers.json"
        self.ids_file.write_text(json.dumps(self.ids))
        self.strangers_file.write_text(json.dumps(strangers))
        self.n_vocab = n_vocab

    def logits(self, *flags):
        out = self.directory / "out.npy"
        command = [QUIRE, "logits", str(self.model), "--ids-file", str(self.ids_file), "--out", str(out), "--kv-pages", "8192", "-q", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return out.read_bytes()


def variants(mode):
    """Some of the ways to cut up the work, at random; in a long run every one."""
    every = list(itertools.product(PAGES, CHUNKS, (False, True), THREADS))
    return every if LONG else random.sample(every, {"many": 20, "some": 12}[mode])


@pytest.mark.parametrize("compute", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("name,mode", [("builtin", "many"), ("hf-bf16", "some"), ("hf-f32", "some"), ("gguf-f32", "some")])
def test_logits_do_not_depend_on_how_the_work_is_cut(quire, tmp_path, name, mode, compute):
    case = Case(name, tmp_path)
    alone = case.logits("--compute", compute, "--threads", "1")
    assert len(alone) == 128 + 4 * len(case.ids) * case.n_vocab
    for page, chunk, strangers, threads in variants(mode):
        flags = ["--compute", compute, "--page-size", str(page), "--chunk", str(chunk), "--threads", str(threads)]
        if strangers:
            flags += ["--batch-with", str(case.strangers_file)]
        assert case.logits(*flags) == alone, f"seed {case.seed}: differs with {' '.join(flags)}"


@pytest.mark.parametrize("name", ["builtin", "gguf-f32"])
@pytest.mark.parametrize("compute", ["f32", "bf16", "int8"])
def test_logits_do_not_depend_on_the_instruction_set(quire, tmp_path, name, compute):
    case = Case(name, tmp_path)
    plain = case.logits("--compute", compute, "--isa", "plain")
    flags = open("/proc/cpuinfo").read()
    sets = [isa for isa, need in (("avx2", "avx2"), ("avxvnni", "avx_vnni"), ("avx512", "avx512_vnni"), ("amx", "amx_int8"), ("avx512bf16", "avx512_bf16")) if need in flags]
    for isa in sets:
        if compute == "bf16" and isa == "avx512bf16":
            continue  # its dot instruction has bits of its own
        assert case.logits("--compute", compute, "--isa", isa) == plain, f"seed {case.seed}: {isa} differs from plain"


KV_TYPES = {"f32": 0, "f16": 0.05, "bf16": 0.5, "int8": 2, "fp8": 4, "int4": 12, "int8 -ctv int4": 8}  # how far logits may be from f32's


@pytest.mark.parametrize("kv", KV_TYPES)
def test_every_kv_type_keeps_the_rule_and_changes_the_numbers_only_a_little(quire, tmp_path, kv):
    np = pytest.importorskip("numpy")
    case = Case("builtin", tmp_path)
    one = case.logits("--compute", "f32", "--kv-dtype", *kv.split())
    two = case.logits("--compute", "f32", "--kv-dtype", *kv.split(), "--page-size", "4", "--chunk", "7", "--batch-with", str(case.strangers_file))
    assert one == two, f"seed {case.seed}"
    exact = case.logits("--compute", "f32", "--kv-dtype", "f32")
    a, b = (np.frombuffer(x[128:], "<f4") for x in (one, exact))
    assert np.abs(a - b).max() <= KV_TYPES[kv]
    assert (kv == "f32") == (one == exact)
