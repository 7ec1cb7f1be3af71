#!/usr/bin/env python3
"""Runs `quire bench speed` and the profiles of a decode and a prefill, and writes what they print to bench/results, with machine, commit and command.

    tools/bench_save.py [NAME]      bench/results/NAME.json; NAME: the day and the processor
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMANDS = {
    "speed": ["build/quire", "bench", "speed", "--json"],
    "profile, batch 32": ["build/quire", "bench", "profile", "--prompt", "512", "--batch", "32", "--steps", "16", "--json"],
    "profile, batch 1": ["build/quire", "bench", "profile", "--batch", "1", "--json"],
}


def first(pattern, text):
    found = re.search(pattern, text, re.M)
    return found.group(1).strip() if found else "unknown"


def machine():
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    return {
        "processor": first(r"^model name\s*:(.*)", cpu),
        "family": first(r"^cpu family\s*:(.*)", cpu),
        "cores": len(os.sched_getaffinity(0)),
        "memory": first(r"^MemTotal:(.*)", pathlib.Path("/proc/meminfo").read_text()),
        "load": os.getloadavg()[0],
    }


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def run(command):
    print(" ".join(command), file=sys.stderr)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    return {"command": " ".join(command), "lines": [json.loads(line) for line in done.stdout.splitlines()]}


def main():
    box = machine()
    name = sys.argv[1] if len(sys.argv) > 1 else f"{datetime.date.today()}-{re.sub(r'[^a-z0-9]+', '-', box['processor'].lower()).strip('-')}"
    result = {"machine": box, "commit": git("rev-parse", "HEAD"), "changed": git("status", "--porcelain") != "", "date": str(datetime.date.today())}
    result["runs"] = {what: run(command) for what, command in COMMANDS.items()}
    path = ROOT / "bench" / "results" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
