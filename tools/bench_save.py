#!/usr/bin/env python3
"""Runs `quire bench speed` and profiles, and keeps what they print in bench/results, with machine, commit and command; the summary goes into
docs/performance.md.

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
PAGE = "docs/performance.md"
END = "<!-- end of figures -->\n"
TYPES = {"q4_0": "Q4_0", "q4_k": "Q4_K", "q8_0": "Q8_0", "int8": "BF16, read as int8 per channel", "bf16": "BF16"}
COMMANDS = {
    "speed": ["build/quire", "bench", "speed", "--json"],
    "many": ["build/quire", "bench", "profile", "--batch", "32", "--steps", "16", "--json"],
    "long": ["build/quire", "bench", "profile", "--batch", "4", "--prompt", "512", "--json"],
    "one": ["build/quire", "bench", "profile", "--batch", "1", "--per-layer", "--json"],
}


def first(pattern, text):
    found = re.search(pattern, text, re.M)
    return found.group(1).strip() if found else "unknown"


def machine():
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    return {
        "processor": first(r"^model name\s*:(.*)", cpu),
        "family": first(r"^cpu family\s*:(.*)", cpu) + ", model " + first(r"^model\s*:(.*)", cpu),
        "cores": len(os.sched_getaffinity(0)),
        "memory": first(r"^MemTotal:(.*)", pathlib.Path("/proc/meminfo").read_text()),
        "load_before": round(os.getloadavg()[0], 2),
    }


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def run(command):
    print(" ".join(command), file=sys.stderr)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    return {"command": " ".join(command), "lines": [json.loads(line) for line in done.stdout.splitlines()]}


def number(x, decimals=1):
    return "" if x is None else f"{x:,.{decimals}f}"


def percent(x):
    return "" if x is None else f"{100 * x:.0f}%"


def table(titles, rows):
    yield "| " + " | ".join(titles) + " |\n"
    yield "|---" + "|--:" * (len(titles) - 1) + "|\n"
    for row in rows:
        yield "| " + " | ".join(row) + " |\n"


def cell(lines, name, kind, batch):
    for line in lines:
        p = line["params"]
        if line["name"] == name and p.get("type") == kind and p.get("batch") == batch:
            return f"{number(line['value'], 0)} ({percent(line['fraction'])})"
    return ""


def summary(result):
    lines, box = result["runs"]["speed"]["lines"], result["machine"]
    rates = {line["params"]["type"]: line["value"] for line in lines if line["name"] == "roofline"}
    yield from table(["weights", "prompt of 512", "1 decodes", "4", "16", "32"],
                     [[title, cell(lines, "prefill", kind, None)] + [cell(lines, "decode", kind, n) for n in (1, 4, 16, 32)] for kind, title in TYPES.items()])
    yield (f"\n{box['processor']}, {box['cores']} cores, load {box['load_before']} before the run; limits found in it: {number(rates['read'])} GB/s, "
           f"{number(rates['int8'], 0)} GOP/s in int8 ({number(rates['int8 by 4 bits'], 0)} with 4 bits), {number(rates['bf16'], 0)} GFLOP/s in bf16.\n")


def usual_name(box):
    processor = re.sub(r"[^a-z0-9]+", "-", box["processor"].lower()).strip("-")
    return f"{datetime.date.today()}-{processor}"


def keep(result, name):
    """Writes bench/results/NAME.json; its path in the repository."""
    path = ROOT / "bench" / "results" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path.relative_to(ROOT)


def replace(name, tool, pieces):
    """Puts pieces between the marks of a tool on a page."""
    begin, path = f"<!-- figures: {tool} -->\n", ROOT / name
    before, rest = path.read_text().split(begin)
    path.write_text(before + begin + "".join(pieces) + END + rest.split(END, 1)[1])


def main():
    box = machine()
    name = sys.argv[1] if len(sys.argv) > 1 else usual_name(box)
    result = {"machine": box, "commit": git("rev-parse", "HEAD"), "changed": git("status", "--porcelain") != "", "date": str(datetime.date.today())}
    result["runs"] = {what: run(command) for what, command in COMMANDS.items()}
    path = keep(result, name)
    replace(PAGE, "tools/bench_save.py", summary(result))
    print(path, PAGE)


if __name__ == "__main__":
    main()
