"""Packed models whose weights are parts of a checkpoint's tensors (fused, transposed, stacked, interleaved): the very logits of their sources."""
import json
import subprocess

import pytest
from conftest import SHARED

MODELS = [SHARED / "golden/models", SHARED / "golden/models-2026"]
# What of a tensor a weight is: rows behind one another, a KV head's rows together, columns, an expert's slab, every second row of one, a head's transpose.
FUSED = ["phi3", "gpt2", "gpt_bigcode", "falcon", "falcon-new", "bloom", "gpt_neox", "mpt", "glm", "glm4"]
EXPERTS = ["mixtral", "gpt_oss", "qwen2-moe", "qwen3-moe", "granitemoe", "glm4_moe", "llama4", "gemma4-moe", "deepseek_v2", "deepseek_v3"]
OTHER = ["stablelm", "cohere-qk-norm", "olmo", "gemma3", "opt", "gemma4", "gemma3n"]  # norms a head, none, w + 1; learned positions; inputs of layers; routers that two steps load
STATES = ["lfm2", "qwen3-next", "qwen3_5", "minimax", "mamba", "mamba2", "falcon_h1", "nemotron_h", "granitemoehybrid"]
# Tensors that the description reads, matrices that stay as they are, a table of n-grams, queries and keys in one tensor.
CHOSEN = ["axk2", "mistral_large4", "minimax_m3", "glm5_next", "qwen4_exp"]
SHOWN = ["hy_v3", "mellum", "mimo_v2_flash", "minicpm3"]  # layers with experts, and the width of values, which only tensors of their GGUF files show

FLAGS = ["-q", "--kv-pages", "512", "--max-model-len", "128"]  # some files say a shorter length than their prompts have


def run(quire, *arguments):
    done = subprocess.run([quire, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def need_models():
    if not MODELS[0].exists():
        pytest.skip(f"{MODELS[0]} is not at hand")


@pytest.mark.parametrize("form", ["directory", "gguf"])
@pytest.mark.parametrize("name", FUSED + EXPERTS + OTHER + STATES + CHOSEN + SHOWN)
def test_a_packed_model_computes_what_its_source_does(quire, need_models, tmp_path, name, form):
    directory = next((at / name for at in MODELS if (at / name).exists()), MODELS[0] / name)
    source = directory / ("model.gguf" if form == "gguf" else "")
    if not source.exists():
        pytest.skip(f"{source} is not at hand")
    ids = ",".join(map(str, json.loads((directory / "ids.json").read_text())["prompt"]))
    seen = set()
    for compute in ("f32", "bf16", "int8"):
        packed, was, now = (tmp_path / f"{compute}.{end}" for end in ("quire", "was", "now"))
        run(quire, "pack", source, "-o", packed, "--compute", compute, "-q")
        run(quire, "logits", source, "--ids", ids, "--out", was, "--compute", compute, *FLAGS)
        run(quire, "logits", packed, "--ids", ids, "--out", now, *FLAGS)
        assert was.read_bytes() == now.read_bytes(), compute
        seen.add(was.read_bytes())
    assert len(seen) == 3  # the modes are modes
