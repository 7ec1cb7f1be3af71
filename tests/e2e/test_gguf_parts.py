"""A GGUF file in several parts, as llama-gguf-split writes them, with a tensor of every type of blocks: its logits are those of the one file, to the bit."""
import pathlib
import subprocess
import sys

import pytest
from conftest import QUIRE

np = pytest.importorskip("numpy")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
from gguf_writer import F32, GgufWriter, I32, STRING, TYPES, U16, U32, keys_of  # noqa: E402
from make_llama import random_matrix  # noqa: E402

WIDTH, VOCAB, LAYERS = 256, 64, 5
KEYS = [("context_length", U32, 64), ("embedding_length", U32, WIDTH), ("block_count", U32, LAYERS), ("feed_forward_length", U32, WIDTH),
        ("attention.head_count", U32, 4), ("attention.head_count_kv", U32, 4), ("attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("rope.freq_base", F32, 10000.0), ("vocab_size", U32, VOCAB)]
BLOCKS = [name for name, (_, elements, _) in TYPES.items() if elements > 1]
MATRICES = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]


def tensors():
    """(name, shape, type, bytes): every type of blocks in turn, beginning with the newest."""
    names = ["token_embd", *(f"blk.{i}.{m}" for i in range(LAYERS) for m in MATRICES), "output"]
    kinds = sorted(BLOCKS, key=lambda kind: -TYPES[kind][0])
    for i, name in enumerate(names):
        kind, shape = kinds[i % len(kinds)], (VOCAB if name in ("token_embd", "output") else WIDTH, WIDTH)
        yield name + ".weight", shape, kind, b"".join(random_matrix(3, i, shape, kind))
    for name in ["output_norm", *(f"blk.{i}.{m}_norm" for i in range(LAYERS) for m in ("attn", "ffn"))]:
        yield name + ".weight", (WIDTH,), "F32", np.ones(WIDTH, "<f4").tobytes()


def write(path, chosen, with_keys, split=()):
    w = GgufWriter()
    if with_keys:
        for name, value in (("general.architecture", "llama"), ("general.name", "parts"), ("tokenizer.ggml.model", "no_vocab")):
            w.add_key(name, STRING, value)
        for name, kind, value in KEYS:
            w.add_key("llama." + name, kind, value)
    for name, kind, value in split:
        w.add_key(name, kind, value)
    for name, shape, kind, data in chosen:
        w.add_tensor(name, shape, kind, lambda data=data: data)
    w.write(path)


def write_parts(folder, groups):
    n = sum(len(g) for g in groups)
    for i, group in enumerate(groups):
        write(folder / f"m-{i + 1:05}-of-{len(groups):05}.gguf", group, i == 0,
              [("split.no", U16, i), ("split.count", U16, len(groups)), ("split.tensors.count", I32, n)])
    return folder / f"m-00001-of-{len(groups):05}.gguf"


def logits(model, folder, *flags):
    out = folder / "logits.npy"
    done = subprocess.run([QUIRE, "logits", model, "--ids", "1,5,9,33,2,63", "--out", out, *flags], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert np.isfinite(np.load(out)).all()
    return out.read_bytes()


@pytest.mark.parametrize("first_is_empty", [False, True])
def test_a_file_in_parts_computes_as_one_with_every_type_of_blocks(quire, tmp_path, first_is_empty):
    made = list(tensors())
    assert {kind for _, _, kind, _ in made} >= set(BLOCKS)
    whole = tmp_path / "whole.gguf"
    write(whole, made, True)
    assert [name for name, _ in keys_of(whole, "llama.")] == ["llama." + name for name, _, _ in KEYS]
    third = len(made) // 3
    groups = [[]] * first_is_empty + [made[:third], made[third:2 * third], made[2 * third:]]
    first = write_parts(tmp_path, groups)
    for flags in ((), ("--compute", "f32"), ("--compute", "bf16")):
        assert logits(first, tmp_path, *flags) == logits(whole, tmp_path, *flags)
    packed = tmp_path / "packed.quire"
    done = subprocess.run([QUIRE, "pack", first, "-o", packed], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for part in tmp_path.glob("m-*.gguf"):
        part.unlink()
    assert logits(packed, tmp_path) == logits(whole, tmp_path)


def test_a_part_that_is_damaged_or_missing_is_named(quire, tmp_path):
    made = list(tensors())
    first = write_parts(tmp_path, [made[:10], made[10:]])
    second = tmp_path / "m-00002-of-00002.gguf"
    whole = second.read_bytes()
    for damage in (whole[:len(whole) // 2], b"GGUX" + whole[4:], None):
        if damage is None:
            second.unlink()
        else:
            second.write_bytes(damage)
        done = subprocess.run([QUIRE, "inspect", first], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and ("m-00002-of-00002" in done.stderr or "part 2 of 2" in done.stderr), done.stderr
