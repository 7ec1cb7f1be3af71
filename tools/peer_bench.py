#!/usr/bin/env python3
"""Times Quire beside llama.cpp and its kin on the same GGUF files, in turn, and keeps the figures in bench/results and docs/performance.md.

    tools/make_llama.py --type Q4_0 --positions 65536 --out DIR/llama-1.1b-q4_0.gguf         so for every type
    tools/make_llama.py --type Q4_0 --positions 65536 --layers 2 --out DIR/deep.gguf         optional: attention by itself
    tools/peer_bench.py --models DIR --peer llama.cpp BUILD/bin "-fa 1" "-fa 1" [--peer ...]
    tools/peer_bench.py --models DIR --types "" --shapes lfm2-1.2b-q4_0,qwen3-next-cut-q4_0 --peer ..   prompts and decodes of DIR/SHAPE.gguf (make_hybrid.py)

A peer is a name, the directory of its llama-bench and llama-batched-bench, and what to give to each of the two; entries of one name are one peer's
ways, of which the best counts in each row. A round runs every program once; the best of all rounds is shown, the rest is in the file.
"""
import argparse
import datetime
import json
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import bench_save

BATCHES, PROMPT, TOKENS, LONG_PROMPT, SHALLOW, DEEP_TOKENS, DEEP_LAYERS = (1, 4, 16, 32), 128, 32, 512, 128, 16, 2


def output(command):
    print(shlex.join(command), file=sys.stderr)
    done = subprocess.run(command, cwd=bench_save.ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout, done.stderr


def seconds(command):
    """From exec to exit."""
    start = time.monotonic()
    output(command)
    return time.monotonic() - start


class Quire:
    name = "Quire"

    def __init__(self, program, threads, packed):
        self.numeric = ["--threads", str(threads), "--kv-dtype", "f16"]
        self.program, self.rest, self.packed = program, [*self.numeric, "--quiet"], packed
        self.version = bench_save.git("rev-parse", "HEAD")[:12]

    def lines(self, model, batches, contexts, n_tokens, n_most):
        # with a target for a step the first answers would end before the last prompts are in, and no step would decode them all: 0.0
        words = ["--step-target-ms", "0",
                 "--batch", ",".join(map(str, batches)), "--context", ",".join(map(str, contexts)), "--decode", str(n_tokens), "--runs", "1"]
        out, _ = output([self.program, "bench", model, *words, "--max-model-len", str(n_most), "--json", *self.rest])
        lines = map(json.loads, out.splitlines())
        return {(line["name"], line["params"]["batch"], line["params"]["context"]): line["value"] for line in lines if line["name"] in ("prefill", "decode")}

    def prefill(self, model):
        # the short prompt warms up, as the others' own first runs do
        return [self.lines(model, [1], [SHALLOW, LONG_PROMPT], 2, LONG_PROMPT + 2)["prefill", 1, LONG_PROMPT]]

    def decode(self, model):
        lines = self.lines(model, BATCHES, [PROMPT], TOKENS + 1, PROMPT + TOKENS + 1)
        return {n: lines["decode", n, PROMPT] for n in BATCHES}

    def token_seconds(self, model, depth):
        return 1 / self.lines(model, [1], [depth], DEEP_TOKENS + 1, depth + DEEP_TOKENS + 1)["decode", 1, depth]

    def start(self, model):
        return seconds([self.program, "logits", model, "--ids", "1", "--out", "/dev/null", *self.rest])

    def first_tokens(self, model, runs=5):
        """Milliseconds to the first token with an empty pack cache, and with the entry that a start has left there."""
        out, _ = output([self.program, "bench", "start", model, "--runs", str(runs), "--json", *self.numeric])
        lines = {line["name"]: line["value"] for line in map(json.loads, out.splitlines())}
        return lines["first"], lines["second"]

    def start_packed(self, model):
        path = f"{self.packed}/{pathlib.Path(model).stem}.quire"
        if not pathlib.Path(path).exists():
            output([self.program, "pack", model, "--out", path, "--quiet"])
            self.start(path)
        return self.start(path)


class Peer:
    def __init__(self, name, directory, flags, batched_flags, threads):
        self.name, self.threads = name, ["-t", str(threads)]
        self.bench, self.batched = [f"{directory}/llama-bench", *shlex.split(flags)], [f"{directory}/llama-batched-bench", *shlex.split(batched_flags)]
        help_text = subprocess.run([self.bench[0], "--help"], capture_output=True, text=True).stdout
        self.takes_depth, self.cold = "--n-depth" in help_text, ["--no-warmup"] if "--no-warmup" in help_text else ["-w", "0"]
        self.version = "unknown"

    def rates(self, model, words):
        out, _ = output([*self.bench, "-m", model, *self.threads, *words, "-o", "json"])
        (test,) = json.loads(out[out.index("["):])
        self.version = f"{test['build_commit']} ({test['build_number']})"
        return test["samples_ts"]

    def prefill(self, model):
        return self.rates(model, ["-p", str(LONG_PROMPT), "-n", "0", "-r", "2"])

    def decode(self, model):
        most = BATCHES[-1] * (PROMPT + TOKENS)
        words = ["-c", str(most), "-b", "2048", "-ub", "512", "-npp", str(PROMPT), "-ntg", str(TOKENS), "-npl", ",".join(map(str, BATCHES))]
        text = "".join(output([*self.batched, "-m", model, *self.threads, *words]))
        rows = [row.split("|")[1:-1] for row in re.findall(r"^(\|(?: *[\d.]+ *\|)+) *$", text, re.M)]
        rates = {int(row[2]): float(row[7]) for row in rows}
        if sorted(rates) != sorted(BATCHES):
            sys.exit(f"{self.batched[0]}: no figure for some of the batches {BATCHES}:\n{text[-2000:]}")
        return rates

    def token_seconds(self, model, depth):
        where = ["-n", str(DEEP_TOKENS), "-d", str(depth)] if self.takes_depth else ["-n", "0", "-gp", f"{depth},{DEEP_TOKENS}"]
        return 1 / max(self.rates(model, ["-p", "0", *where, "-r", "1"]))

    def start(self, model):
        return seconds([*self.bench, "-m", model, *self.threads, "-p", "1", "-n", "0", "-r", "1", *self.cold, "-o", "json"])


class Figures:
    """Samples by row of the table and program. A row is (work, unit); of times the least is the best."""

    def __init__(self):
        self.rows = {}

    def add(self, work, unit, name, samples):
        print(f"{name}: {work}: {', '.join(f'{s:.1f}' for s in samples)} {unit}", file=sys.stderr)
        self.rows.setdefault((work, unit), {}).setdefault(name, []).extend(samples)

    def best(self, row, name):
        samples = self.rows[row].get(name)
        return None if samples is None else max(samples) if row[1] == "tokens/s" else min(samples)

    def table(self, names):
        for row in self.rows:
            values = [self.best(row, name) for name in names]
            ratios = [values[0] / v if row[1] == "tokens/s" else v / values[0] for v in values[1:] if v is not None]
            yield [f"{row[0]}, {row[1]}", *(bench_save.number(v) for v in values), f"{min(ratios):.2f}" if ratios else ""]

    def lines(self):
        for (work, unit), by_name in self.rows.items():
            yield {"work": work, "unit": unit, "samples": by_name, "median": {name: statistics.median(s) for name, s in by_name.items()}}


def measure_rates(kind, model, programs, figures):
    for p in programs:
        figures.add(f"{kind}: prompt of {LONG_PROMPT}", "tokens/s", p.name, p.prefill(model))
    for p in programs:
        for n, rate in p.decode(model).items():
            figures.add(f"{kind}: {n} decode{'s' if n == 1 else ''}", "tokens/s", p.name, [rate])


def measure_starts(kind, model, programs, figures):
    quire = programs[0]
    for _ in range(3):
        for p in programs:
            figures.add(f"{kind}: exec to one token and exit, GGUF", "ms", p.name, [1e3 * p.start(model)])
    figures.add(f"{kind}: the same, packed", "ms", quire.name, [1e3 * quire.start_packed(model) for _ in range(3)])
    first, second = quire.first_tokens(model)
    figures.add(f"{kind}: exec to the first token, GGUF, first start", "ms", quire.name, [first])
    figures.add(f"{kind}: the same, second start", "ms", quire.name, [second])


def measure(o, programs, figures):
    for kind in names(o.types):
        model = f"{o.models}/llama-1.1b-{kind}.gguf"
        if not o.starts_only:
            measure_rates(kind, model, programs, figures)
        measure_starts(kind, model, programs, figures)
    for shape in names(o.shapes):
        measure_rates(shape, f"{o.models}/{shape}.gguf", programs, figures)


def names(words):
    return [word for word in words.split(",") if word]


def measure_depths(o, programs, least):
    """The least seconds that a token of a model of a few layers took, by program and depth."""
    model = f"{o.models}/deep.gguf"
    depths = list(map(int, names(o.depths)))
    for depth in [SHALLOW, *depths] if depths else []:
        for p in programs:
            took = p.token_seconds(model, depth)
            print(f"{p.name}: token at {depth}: {1e6 * took:.1f} us", file=sys.stderr)
            least[p, depth] = min(took, least.get((p, depth), took))


def add_depths(least, figures):
    """What a decoding token's attention takes: a token far in, less one near the start. Each the best of its own rounds: of differences within a
    round the least is the one whose short token was held up."""
    for (p, depth), took in least.items():
        if depth != SHALLOW:
            figures.add(f"attention of a token at {depth}", "us/layer", p.name, [1e6 * (took - least[p, SHALLOW]) / DEEP_LAYERS])


def page(result):
    box = result["machine"]
    programs = ", ".join(f"{name} {version}" for name, version in result["programs"].items())
    yield (f"{box['processor']} (family {box['family']}), {result['threads']} threads, load {box['load_before']} before the run; {result['date']}; {programs}. "
           f"The best of {result['rounds']} rounds.\n\n")
    yield from bench_save.table(["work, unit", *result["programs"], "Quire to the best of the others"], result["table"])


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", required=True, help="where llama-1.1b-TYPE.gguf lie")
    p.add_argument("--quire", default="build/quire")
    p.add_argument("--types", default="q4_0,q4_k,q8_0,bf16")
    p.add_argument("--shapes", default="", help="other files there, whose starts are not timed: lfm2-1.2b-q4_0,..")
    p.add_argument("--peer", nargs=4, action="append", required=True, metavar=("NAME", "DIRECTORY", "FLAGS", "BATCHED_FLAGS"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=bench_save.machine()["cores"])
    p.add_argument("--depths", default="", help="also attention that deep, by deep.gguf: 8192,32768")
    p.add_argument("--starts-only", action="store_true", help="no prompts and decodes")
    p.add_argument("--save", action="store_true", help="into bench/results and docs/performance.md")
    return p.parse_args()


def main():
    o, figures, least = options(), Figures(), {}
    result = {"machine": bench_save.machine(), "changed": bench_save.git("status", "--porcelain") != "", "date": str(datetime.date.today()),
              "flags": [[name, *flags] for name, _, *flags in o.peer], "threads": o.threads, "rounds": o.rounds}
    with tempfile.TemporaryDirectory() as packed:
        programs = [Quire(o.quire, o.threads, packed)] + [Peer(*peer, o.threads) for peer in o.peer]
        for _ in range(o.rounds):
            measure(o, programs, figures)
            measure_depths(o, programs, least)
    add_depths(least, figures)
    result["programs"] = {p.name: p.version for p in programs}
    result["table"], result["lines"] = list(figures.table(list(result["programs"]))), list(figures.lines())
    sys.stdout.writelines(page(result))
    if o.save:
        what = "tools/peer_bench.py --shapes" if o.shapes else "tools/peer_bench.py"
        print(bench_save.keep(result, bench_save.usual_name(result["machine"]) + ("-shapes" if o.shapes else "-peers")))
        bench_save.replace("docs/performance.md", what, page(result))


if __name__ == "__main__":
    main()
