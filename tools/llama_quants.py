#!/usr/bin/env python3
"""Quantises a seeded Llama of width 512 with llama.cpp, to every type that llama-quantize writes, and compares both programs on each file: how far the
logits are from the exact ones, Quire's with --compute f32 and --kv-dtype f32. Both run with their defaults, and with keys and values in f16, which is
llama.cpp's. Prints a table; exit status 1 if Quire is farther. Needs numpy.

    llama_quants.py --llama build/llama [--types Q4_0,IQ4_XS] [--quire build/quire] [--shared ../shared] [--threads 2]

--llama: where tools/llama_cpp.sh built llama-quantize, llama-imatrix and llama-logits. The importance matrix is of WikiText-2, the compared tokens are of
War and Peace. The mean of the Kullback-Leibler divergence is over all positions of all windows, in nats.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

TOOLS = pathlib.Path(__file__).parent
CONTEXT, WINDOWS, CHUNKS = 512, 4, 20
SHARPNESS = 3  # logits have this deviation: an entropy of 1.7 nats, as of a model that has learnt
SLACK = 1.02, 1e-6  # a KL that is that many times larger, or larger by that, is the same
# No names of llama-quantize, which has these types for experts or single tensors only: the matrices of layers are made so by name.
BY_NAME = {"MXFP4": "mxfp4", "NVFP4": "nvfp4"}
ROUNDED = {"F16"}  # not quantised: auto computes it in bf16, which rounds its weights


class Failed(Exception):
    pass


def run(*command, data=None, seconds=900):
    done = subprocess.run([str(c) for c in command], input=data, capture_output=True, timeout=seconds)
    if done.returncode != 0:
        raise Failed(f"{pathlib.Path(command[0]).name}: " + done.stderr.decode(errors="replace").strip()[-600:])
    return done.stdout


def types_of(llama):
    """Names of llama-quantize's types, without aliases."""
    done = subprocess.run([llama / "llama-quantize", "--help"], capture_output=True, text=True)
    found = re.findall(r"^ +\d+ +or +(\S+) +: (.*)$", done.stdout + done.stderr, re.M)
    return [name for name, what in found if "alias" not in what] + list(BY_NAME)


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def divergence(exact, other):
    p, q = log_softmax(exact), log_softmax(other)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


class Comparison:
    def __init__(self, o, folder):
        self.o, self.folder, self.llama = o, folder, pathlib.Path(o.llama) / "bin"
        data = pathlib.Path(o.shared) / "data"
        self.source, self.matrix, self.file = folder / "f32.gguf", folder / "imatrix.gguf", folder / "quantised.gguf"
        run(sys.executable, TOOLS / "make_llama.py", "--preset", "512", "--sharpness", SHARPNESS, "--vocabulary",
            data / "models/stories260K/stories260K.gguf", "--out", self.source)
        run(self.llama / "llama-imatrix", "-m", self.source, "-f", data / "text/wiki.test.raw", "-o", self.matrix, "-c", CONTEXT, "--chunks", CHUNKS,
            "-t", o.threads)
        text = (data / "text/war-and-peace.txt").read_text(encoding="utf-8")[:8 * CONTEXT * WINDOWS]
        ids = run(o.quire, "tokenize", self.source, "-p", text)
        ids = np.array([int(i) for i in re.findall(rb"\d+", ids)], dtype="<i4")[:CONTEXT * WINDOWS]
        self.windows = ids.reshape(WINDOWS, CONTEXT)

    def quire(self, *flags):
        rows = []
        for window in self.windows:
            run(self.o.quire, "logits", self.file, "--ids", ",".join(map(str, window)), "--out", self.folder / "l.npy", "-t", self.o.threads, "-q", *flags)
            rows.append(np.load(self.folder / "l.npy"))
        return np.stack(rows)

    def peer(self):
        out = run(self.llama / "llama-logits", self.file, CONTEXT, self.o.threads, data=self.windows.tobytes())
        return np.frombuffer(out, dtype="<f4").reshape(WINDOWS, CONTEXT, -1)

    def row(self, kind):
        """(bits a weight, mean KL of Quire, of llama.cpp)."""
        by_name = ["--tensor-type", f"(attn|ffn)_={BY_NAME[kind]}"] if kind in BY_NAME else []
        run(self.llama / "llama-quantize", "--imatrix", self.matrix, *by_name, self.source, self.file, "Q8_0" if by_name else kind, self.o.threads)
        exact = self.quire("--compute", "f32", "--kv-dtype", "f32")
        bits = 8 * self.file.stat().st_size / (self.source.stat().st_size / 4)
        return bits, divergence(exact, self.quire("--kv-dtype", "f16")), divergence(exact, self.peer())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--llama", required=True)
    p.add_argument("--quire", default="build/quire")
    p.add_argument("--shared", default="../shared")
    p.add_argument("--types", help="of llama-quantize, separated by commas (all)")
    p.add_argument("--threads", type=int, default=2)
    o = p.parse_args()
    worse = []
    with tempfile.TemporaryDirectory() as folder:
        c = Comparison(o, pathlib.Path(folder))
        print(f"{'type':<10} {'bits':>6} {'Quire':>10} {'llama.cpp':>10} {'ratio':>6}")
        for kind in o.types.split(",") if o.types else types_of(c.llama):
            try:
                bits, mine, peer = c.row(kind)
            except Failed as e:
                print(f"{kind:<10} {e}", flush=True)
                worse.append(kind)
                continue
            print(f"{kind:<10} {bits:6.2f} {mine:10.6f} {peer:10.6f} {mine / max(peer, 1e-12):6.2f}", flush=True)
            if mine > peer * SLACK[0] + SLACK[1] and kind not in ROUNDED:
                worse.append(kind)
    if worse:
        print("Quire is farther, or failed: " + ", ".join(worse))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
