"""A packed mixture of experts larger than the memory that the process may have: experts are read where they are mapped, and the answers are the same bits."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import QUIRE

numpy = pytest.importorskip("numpy")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
from gguf_writer import F32, GgufWriter, STRING, U32  # noqa: E402

MB = 1_000_000
LAYERS, MODEL, HIDDEN, EXPERTS, VOCABULARY = 6, 512, 1024, 16, 512
LIMIT = 100 * MB
FLAGS = ["--max-model-len", "256", "--max-num-seqs", "2", "--max-num-batched-tokens", "64"]


def write_mixture(path):
    """Mixtral's form in Q8_0, some 160 MB, with random weights."""
    draw = numpy.random.default_rng(7)
    file = GgufWriter()
    file.add_key("general.architecture", STRING, "llama")
    for name, value in {"context_length": 256, "embedding_length": MODEL, "block_count": LAYERS, "feed_forward_length": HIDDEN, "attention.head_count": 8,
                        "attention.head_count_kv": 2, "rope.dimension_count": 64, "vocab_size": VOCABULARY, "expert_count": EXPERTS, "expert_used_count": 2}.items():
        file.add_key("llama." + name, U32, value)
    file.add_key("llama.attention.layer_norm_rms_epsilon", F32, 1e-5)
    file.add_key("tokenizer.ggml.model", STRING, "no_vocab")

    def norm(n):
        return lambda: numpy.ones(n, dtype=numpy.float32).tobytes()

    def matrix(*shape):
        """Blocks of 32: a scale, then 32 bytes; elements have a deviation of 1 / sqrt(inputs)."""
        n = int(numpy.prod(shape)) // 32

        def make():
            blocks = numpy.empty((n, 34), dtype=numpy.uint8)
            blocks[:, :2] = numpy.full(n, 1.0 / (73.3 * shape[-1] ** 0.5), dtype=numpy.float16).view(numpy.uint8).reshape(n, 2)
            blocks[:, 2:] = draw.integers(-127, 128, (n, 32), dtype=numpy.int8).view(numpy.uint8)
            return blocks.tobytes()
        return make

    def add(name, *shape):
        file.add_tensor(name, shape, "F32" if len(shape) == 1 else "Q8_0", norm(*shape) if len(shape) == 1 else matrix(*shape))

    add("token_embd.weight", VOCABULARY, MODEL)
    add("output_norm.weight", MODEL)
    add("output.weight", VOCABULARY, MODEL)
    for i in range(LAYERS):
        add(f"blk.{i}.attn_norm.weight", MODEL)
        add(f"blk.{i}.attn_q.weight", 512, MODEL)
        add(f"blk.{i}.attn_k.weight", 128, MODEL)
        add(f"blk.{i}.attn_v.weight", 128, MODEL)
        add(f"blk.{i}.attn_output.weight", MODEL, 512)
        add(f"blk.{i}.ffn_norm.weight", MODEL)
        add(f"blk.{i}.ffn_gate_inp.weight", EXPERTS, MODEL)
        add(f"blk.{i}.ffn_gate_exps.weight", EXPERTS, HIDDEN, MODEL)
        add(f"blk.{i}.ffn_up_exps.weight", EXPERTS, HIDDEN, MODEL)
        add(f"blk.{i}.ffn_down_exps.weight", EXPERTS, MODEL, HIDDEN)
    file.write(path)


class Group:
    """A cgroup below this process's own, version 1, with a limit of memory, cached pages of files included."""

    def __init__(self, limit):
        own = re.search(r"^\d+:(?:\w+,)*memory(?:,\w+)*:(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.M)
        if own is None:
            pytest.skip("no memory cgroup of version 1 here")
        self.path = pathlib.Path("/sys/fs/cgroup/memory" + own[1]) / f"quire-test-{os.getpid()}"
        try:
            self.path.mkdir()
            (self.path / "memory.limit_in_bytes").write_text(str(limit))
        except OSError as e:
            self.close()
            pytest.skip(f"{self.path}: no cgroup with a limit of memory can be made: {e.strerror}")

    def read(self, name):
        return int((self.path / name).read_text())

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        until = time.monotonic() + 10
        while self.path.is_dir():
            try:
                self.path.rmdir()
            except OSError:  # the kernel counts an ended process for a moment
                assert time.monotonic() < until, self.path
                time.sleep(0.01)


@pytest.fixture(scope="module")
def packed(quire, tmp_path_factory):
    directory = tmp_path_factory.mktemp("larger")
    gguf, path = directory / "model.gguf", directory / "model.quire"
    write_mixture(gguf)
    done = subprocess.run([QUIRE, "pack", gguf, "-o", path, "-q"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    gguf.unlink()
    yield path
    path.unlink()


def forget_cached(path):
    """Has the kernel drop the file's pages, so that whoever reads them next has them counted."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(path, directory, group=None):
    """Logits of a prompt, then texts, and what the program says about its memory. The number of pages is the program's own."""
    ids = [(k * 37 + k * k) % VOCABULARY for k in range(96)]
    lines = [{"ids": ids[k:k + 20], "max_tokens": 24, "temperature": t, "seed": 3, "ignore_eos": True} for k in (0, 31, 60) for t in (0, 0.9)]
    prompts, out, logits = (directory / name for name in ("in.jsonl", "out.jsonl", "out.npy"))
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out.unlink(missing_ok=True)
    for arguments in (["logits", path, "--ids", ",".join(map(str, ids)), "--out", logits], ["run", path, "--prompts", prompts, "--out", out]):
        forget_cached(path)
        done = subprocess.run([QUIRE, *map(str, arguments), *FLAGS], capture_output=True, text=True, timeout=500, preexec_fn=group and group.enter)
        assert done.returncode == 0, (done.returncode, done.stderr)
    texts = sorted((json.loads(line) for line in out.read_text().splitlines()), key=lambda a: a["index"])
    return logits.read_bytes(), [answer["token_ids"] for answer in texts], done.stderr


def test_a_mixture_larger_than_its_memory_gives_the_same_bits(packed, tmp_path):
    size = packed.stat().st_size
    assert size > 1.5 * LIMIT
    free = run(packed, tmp_path)
    assert numpy.isfinite(numpy.frombuffer(free[0][128:], dtype=numpy.float32)).all() and len({tuple(t) for t in free[1]}) == 6
    group = Group(LIMIT)
    try:
        limited = run(packed, tmp_path, group)
        most, failed = group.read("memory.max_usage_in_bytes"), group.read("memory.failcnt")
    finally:
        group.close()
    print(f"packed {size / MB:.1f} MB, limit {LIMIT / MB:.0f} MB, most in use {most / MB:.1f} MB, {failed} times at the limit")
    assert limited[:2] == free[:2]
    assert re.search(r"weights \(\S+ MB, of which \S+ MB stay in memory\)", limited[2]) and "read them from the file repeatedly" in limited[2], limited[2]
    assert "stay in memory" not in free[2]
    assert most <= LIMIT + MB and failed > 0  # it was at the limit, and pages had to go
