#!/usr/bin/env python3
"""Which white space should the JSON of structured outputs have? A small model copies instances of MaskBench's schemas into JSON under each form of
json_whitespace, and the form that it gets most of them right in is the best.

    tools/space_bench.py                       200 schemas x 3 forms on Gemma 3 270M (tools/real_models.sh), some ten minutes
    tools/space_bench.py --table FILE          the table of answers that were kept

The prompt is a valid instance as lines `path: value`, then `JSON:`. An answer is right if it equals the instance. Greedy, so the answers do not depend on
the machine's load; all of them go to --out, one line each.
"""
import argparse
import concurrent.futures
import http.client
import itertools
import json
import os
import pathlib
import re
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = pathlib.Path(os.environ.get("QUIRE_SHARED", ROOT.parent / "shared"))
FORMS = "compact", "lines", "any"
LEAST, MOST = 20, 120  # characters of an instance
MAX_TOKENS = 192


def lines_of(value, path=""):
    """The instance as lines: one a scalar, or empty container."""
    if isinstance(value, dict) and value:
        return [line for name, member in value.items() for line in lines_of(member, f"{path}.{name}" if path else name)]
    if isinstance(value, list) and value:
        return [line for i, item in enumerate(value) for line in lines_of(item, f"{path}[{i}]")]
    return [f"{path}: {json.dumps(value, ensure_ascii=False)}"]


def candidates():
    for path in sorted((SHARED / "data/json/maskbench").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            valid = [t["data"] for t in record["tests"] if t["valid"] and isinstance(t["data"], dict) and t["data"]]
            valid = [d for d in valid if LEAST <= len(json.dumps(d)) <= MOST]
            if valid:
                yield record["file"], record["schema"], valid[0]


class Client:
    """One request after another on a connection."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(*address, timeout=3600)

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())


def compiles(address, schema, form):
    body = {"prompt": "x", "max_tokens": 1, "structured_outputs": {"json": schema}, "json_whitespace": form}
    return Client(address).post("/v1/completions", body)[0] == 200


def choose(address, n):
    """n schemas at equal distances among those that every form can be held to."""
    found = list(candidates())
    chosen, step, at = [], len(found) / n, 0.0
    while len(chosen) < n and at < len(found):
        nearby = found[int(at):int(at + step)]
        chosen += itertools.islice((c for c in nearby if all(compiles(address, c[1], form) for form in FORMS)), 1)
        at += step
    return chosen


def ask(address, name, schema, instance, form):
    prompt = "\n".join(lines_of(instance)) + "\nJSON:"
    body = {"prompt": prompt, "temperature": 0, "max_tokens": MAX_TOKENS, "structured_outputs": {"json": schema}, "json_whitespace": form}
    status, answer = Client(address).post("/v1/completions", body)
    text = answer["choices"][0]["text"] if status == 200 else None
    try:
        right = text is not None and json.loads(text) == instance
    except ValueError:
        right = False
    return {"schema": name, "form": form, "right": right, "tokens": answer["usage"]["completion_tokens"] if text is not None else 0,
            "finish": answer["choices"][0]["finish_reason"] if text is not None else str(status), "instance": instance, "text": text}


def table(answers):
    rows = [f"{'json_whitespace':<16}{'schemas':>8}{'right':>8}{'cut off':>9}{'tokens':>8}"]
    for form in FORMS:
        mine = [a for a in answers if a["form"] == form]
        cut = sum(a["finish"] == "length" for a in mine)
        rows.append(f"{form:<16}{len(mine):>8}{sum(a['right'] for a in mine):>8}{cut:>9}{sum(a['tokens'] for a in mine):>8}")
    return "\n".join(rows)


def serve(arguments):
    process = subprocess.Popen([arguments.quire, "serve", str(arguments.model), "--port", str(arguments.port), "--max-model-len", "1024", "--max-num-seqs", "16"],
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        found = re.search(r"listening on http://([^\s:]+):(\d+)", line)
        if found:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, (found[1], int(found[2]))
    raise SystemExit("quire serve did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=ROOT / "build/real/gemma-3-270m-q4_k_m.gguf", type=pathlib.Path)
    parser.add_argument("--quire", default=os.environ.get("QUIRE_BIN", str(ROOT / "build/quire")))
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/json-whitespace.jsonl")
    parser.add_argument("--table", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.table:
        print(table([json.loads(line) for line in arguments.table.read_text().splitlines()]))
        return
    process, address = serve(arguments)
    try:
        jobs = [(*one, form) for one in choose(address, arguments.schemas) for form in FORMS]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda job: ask(address, *job), jobs))
    finally:
        process.terminate()
        process.wait()
    arguments.out.write_text("".join(json.dumps(a, ensure_ascii=False) + "\n" for a in answers))
    print(table(answers))


if __name__ == "__main__":
    main()
