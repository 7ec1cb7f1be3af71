#!/usr/bin/env python3
"""Times requests under adapters on Quire and on llama-server, in turn, with the same files and the same bodies; prints a table. On a quiet machine.

    tools/lora_bench.py BUILD/bin [--adapters 8] [--rank 16] [--preset 1.1b] [--type Q4_0] [--threads 2] [--rounds 3] [--json]

BUILD/bin has llama-server (its page on the web says how to build it). The base is random (tools/make_llama.py) with the built-in model's vocabulary, and
so are the adapters: GGUF files in F16, on all linears of the layers, which both programs load by --lora. Requests are /completion with `lora`:
  none     as many requests at once as there are adapters, without any
  one      the same, all under the first
  own      the same, each under its own
  prompt   one request of one token after --prompt tokens, under an adapter
Rates are the answers' tokens over the time from the first request to the last answer; the best of all rounds is shown. At the end it is counted
whose first tokens under each adapter both programs agree on. Needs numpy, as make_llama.py.
"""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

import bench_save
from gguf_writer import F32, STRING, GgufWriter
from make_llama import PRESETS

VOCAB, SEED = 2048, 11  # of models/builtin.gguf


def linears(preset):
    """(name, n_out, n_in) of the layers' linears."""
    p = PRESETS[preset]
    d, head = p["d_model"], p.get("d_head") or p["d_model"] // p["heads"]
    shapes = {"attn_q": (p["heads"] * head, d), "attn_k": (p["kv_heads"] * head, d), "attn_v": (p["kv_heads"] * head, d), "attn_output": (d, p["heads"] * head),
              "ffn_gate": (p["d_ff"], d), "ffn_up": (p["d_ff"], d), "ffn_down": (d, p["d_ff"])}
    return [(f"blk.{layer}.{name}", *shape) for layer in range(p["layers"]) for name, shape in shapes.items()]


def write_adapter(path, preset, rank, number, scale):
    rng, w = np.random.default_rng(100 + number), GgufWriter()
    for key, value in (("general.architecture", "llama"), ("general.type", "adapter"), ("adapter.type", "lora")):
        w.add_key(key, STRING, value)
    w.add_key("adapter.lora.alpha", F32, float(rank))
    for name, n_out, n_in in linears(preset):
        for end, shape in (("lora_a", (rank, n_in)), ("lora_b", (n_out, rank))):
            size = scale / shape[1] ** 0.5
            w.add_tensor(f"{name}.weight.{end}", shape, "F16", lambda shape=shape, size=size: (rng.standard_normal(shape) * size).astype("<f2").tobytes())
    w.write(path)


class Program:
    """A server with the base and all adapters; which of them applies is each request's to say."""

    def __init__(self, name, command):
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        self.name, self.log = name, tempfile.TemporaryFile()
        self.process = subprocess.Popen([*command, "--port", str(self.port)], cwd=bench_save.ROOT, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def ask(self, body, path="/completion"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        connection.request("POST" if body else "GET", path, body and json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{self.name}: {answer.status} {text[:500]}")
        return json.loads(text) if body else None

    def wait(self):
        for _ in range(6000):
            try:
                self.ask(None, "/health")
                return
            except (OSError, RuntimeError):
                if self.process.poll() is not None:
                    break
                time.sleep(.1)
        self.log.seek(0)
        sys.exit(f"{self.name} did not start:\n{self.log.read()[-2000:].decode(errors='replace')}")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)

    def together(self, bodies):
        """Tokens a second of requests that are sent at once, and their answers."""
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(self.ask, bodies))
        return sum(len(a["tokens"]) for a in answers) / (time.monotonic() - start), answers


def commands(o, base, adapters):
    loras = [word for path in adapters for word in ("--lora", str(path))]
    own = ["--lora-init-without-apply", *loras]
    most = o.context + o.tokens + 8
    yield "Quire", [o.quire, "serve", base, "--host", "127.0.0.1", "-t", str(o.threads), "--max-loras", str(o.adapters), "--max-lora-rank", str(max(o.rank, 8)),
                    "--max-cpu-loras", str(o.adapters), "--max-num-seqs", str(o.adapters), "--max-model-len", str(max(most, o.prompt + 8)), *own]
    yield "llama-server", [f"{o.llama}/llama-server", "-m", base, "--host", "127.0.0.1", "-t", str(o.threads), "-np", str(o.adapters), "--no-webui",
                           "-c", str(o.adapters * max(most, o.prompt + 8)), *own]


def body(o, n_prompt, n_tokens, lora, number=0):
    ids = random.Random(SEED + number).choices(range(300, VOCAB), k=n_prompt)
    return {"prompt": ids, "n_predict": n_tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False, "return_tokens": True,
            "lora": [] if lora is None else [{"id": lora, "scale": 1.0}]}


def measure(o, program, rows):
    """One round; the first answer under each adapter, by its tokens."""
    own = range(o.adapters)
    kinds = {"none": [None for _ in own], "one": [0 for _ in own], "own": list(own)}
    for kind, loras in kinds.items():
        rate, answers = program.together([body(o, o.context, o.tokens, lora, i) for i, lora in enumerate(loras)])
        rows.setdefault((f"{len(answers)} requests, {kind}", "tokens/s"), {}).setdefault(program.name, []).append(rate)
    start = time.monotonic()
    program.ask(body(o, o.prompt, 1, 0))
    rows.setdefault((f"prompt of {o.prompt}, one", "ms"), {}).setdefault(program.name, []).append(1e3 * (time.monotonic() - start))
    return [a["tokens"] for a in answers]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("llama", metavar="BUILD/bin")
    p.add_argument("--quire", default="build/quire")
    for name, value in (("adapters", 8), ("rank", 16), ("threads", 2), ("rounds", 3), ("context", 64), ("tokens", 32), ("prompt", 512)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--preset", choices=PRESETS, default="1.1b")
    p.add_argument("--type", default="Q4_0")
    p.add_argument("--scale", type=float, default=0.1, help="of the adapters' numbers: at 1 they change as much as the base has (0.1)")
    p.add_argument("--json", action="store_true", help="a line for each row")
    o = p.parse_args()
    rows, firsts = {}, {}
    with tempfile.TemporaryDirectory(prefix="quire-lora-") as folder:
        base = f"{folder}/base.gguf"
        subprocess.run([sys.executable, bench_save.ROOT / "tools/make_llama.py", "--preset", o.preset, "--type", o.type, "--vocab", str(VOCAB), "--sharpness", "4",
                        "--positions", "8192", "--vocabulary", bench_save.ROOT / "models/builtin.gguf", "--out", base], check=True, stdout=subprocess.DEVNULL)
        adapters = [pathlib.Path(folder) / f"{i}.gguf" for i in range(o.adapters)]
        for i, path in enumerate(adapters):
            write_adapter(path, o.preset, o.rank, i, o.scale)
        for turn in range(o.rounds):
            for name, command in commands(o, base, adapters):
                program = Program(name, command)
                try:
                    program.wait()
                    program.together([body(o, 16, 2, i, i) for i in range(o.adapters)])  # all are loaded, and their memory is there
                    firsts[name] = measure(o, program, rows)
                finally:
                    program.stop()
    best = {row: {name: (min if row[1] == "ms" else max)(samples) for name, samples in by_name.items()} for row, by_name in rows.items()}
    for (work, unit), by_name in best.items() if o.json else ():
        print(json.dumps({"bench": "lora_peer", "work": work, "unit": unit, **by_name}))
    names = list(firsts)
    if not o.json:
        lines = [[f"{work}, {unit}", *(bench_save.number(by_name[n]) for n in names)] for (work, unit), by_name in best.items()]
        sys.stdout.writelines(bench_save.table([f"work, unit", *names], lines))
    alike = sum(a[0] == b[0] for a, b in zip(*(firsts[n] for n in names)))
    print(f"first tokens under {o.adapters} adapters of rank {o.rank}: {alike} alike" if not o.json
          else json.dumps({"bench": "lora_peer", "work": "first tokens alike", "unit": "of " + str(o.adapters), "value": alike}))


if __name__ == "__main__":
    main()
