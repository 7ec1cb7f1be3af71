#!/usr/bin/env python3
"""Tokens/s of the Python package beside `quire run --prompts`: the same prompts, all at once, each in a process of its own, in turn. Both count from
the start of their process to its end, so loading the model and starting Python are in. Processor seconds tell what the package itself costs, also
where other programs run. The texts must be equal.

    tools/python_bench.py PYTHON [MODEL] [--prompts 1000] [--tokens 64] [--rounds 3] [--json]    PYTHON: an interpreter that has the package"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

QUIRE = os.environ.get("QUIRE_BIN", "build/quire")
PAGES = 8192
PACKAGE = """
import json, sys
from quire import LLM, SamplingParams
model, prompts, answers, pages = sys.argv[1:]
prompts = [json.loads(line) for line in open(prompts)]
with LLM(model, num_gpu_blocks_override=int(pages)) as llm:
    params = [SamplingParams(temperature=0, max_tokens=p["max_tokens"], ignore_eos=True) for p in prompts]
    with open(answers, "w") as out:
        for answer in llm.generate([p["prompt"] for p in prompts], params):
            print(json.dumps({"text": answer.outputs[0].text}), file=out)
"""


def measured(command):
    """Seconds and processor seconds of a command."""
    begun = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"python_bench: {' '.join(command[:3])} failed: {said[-2000:]}")
    return time.monotonic() - begun, used.ru_utime + used.ru_stime


def texts(path):
    return [json.loads(line)["text"] for line in open(path)]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("python")
    a.add_argument("model", nargs="?", default="builtin")
    a.add_argument("--prompts", type=int, default=1000)
    a.add_argument("--tokens", type=int, default=64)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--json", action="store_true")
    o = a.parse_args()
    with tempfile.TemporaryDirectory() as there:
        prompts, ours, theirs = (str(pathlib.Path(there) / name) for name in ("in.jsonl", "package.jsonl", "program.jsonl"))
        with open(prompts, "w") as f:
            for i in range(o.prompts):
                line = {"prompt": f"Chapter {i}: the prince number {i * 7 % 13} looked", "max_tokens": o.tokens, "ignore_eos": True}
                print(json.dumps(line), file=f)
        commands = {"quire run": [QUIRE, "run", o.model, "--prompts", prompts, "--out", theirs, "--temp", "0", "--kv-pages", str(PAGES)],
                    "package": [o.python, "-c", PACKAGE, o.model, prompts, ours, str(PAGES)]}
        best = {name: (float("inf"), float("inf")) for name in commands}
        for _ in range(o.rounds):
            pathlib.Path(theirs).unlink(missing_ok=True)
            for name, command in commands.items():
                best[name] = tuple(map(min, best[name], measured(command)))
            if texts(ours) != texts(theirs):
                sys.exit("python_bench: the texts differ")
    n = o.prompts * o.tokens
    rows = [{"who": name, "tokens/s": n / seconds, "tokens/processor s": n / used} for name, (seconds, used) in best.items()]
    for row in rows:
        for unit in ("tokens/s", "tokens/processor s"):
            row[f"of quire run, {unit}"] = row[unit] / rows[0][unit]
    if o.json:
        print(json.dumps(rows))
        return
    print("| who | tokens/s | of quire run | tokens/processor s | of quire run |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['who']} | {row['tokens/s']:,.0f} | {row['of quire run, tokens/s']:.3f} "
              f"| {row['tokens/processor s']:,.0f} | {row['of quire run, tokens/processor s']:.3f} |")


if __name__ == "__main__":
    main()
