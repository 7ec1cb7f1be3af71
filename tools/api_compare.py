#!/usr/bin/env python3
"""Asks a server the recorded questions of golden/api, and prints how its answers differ from the recorded ones, each difference with its reason.

    tools/api_compare.py [--shared ../shared] [--quire build/quire] [--only WORDS] [--unexplained]

A difference is a status, a field that the answer lacks, an order of events, a number of tokens or a text. The reasons are in tests/e2e/api_differences.json:
a list of {"name", "difference", "reason"}, regular expressions that a question's whole name and a whole difference match. Ends with 1 if one has no reason.
"""
import argparse
import http.client
import json
import pathlib
import re
import subprocess
import sys

KEY = "k-test"
REASONS = pathlib.Path(__file__).parent.parent / "tests/e2e/api_differences.json"
FLAGS = ("--api-key", KEY, "--served-model-name", "tiny", "--max-model-len", "1024", "--compute", "f32")
USAGE = ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens")


def records(shared):
    return [json.loads(line) for line in (pathlib.Path(shared) / "golden/api/vllm-0.32.0.jsonl").read_text().split("\n") if line]


def missing(ours, theirs, where=""):
    """The fields of theirs that ours lacks, by path; elements of lists share one."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key, value in theirs.items():
            path = f"{where}.{key}" if where else key
            if key not in ours:
                yield path
            else:
                yield from missing(ours[key], value, path)
    elif isinstance(theirs, list) and isinstance(ours, list):
        for a, b in zip(ours, theirs):
            yield from missing(a, b, where + "[]")


def is_greedy(record):
    return (record["body"] or {}).get("temperature") == 0


def usage_of(answer, record):
    """The numbers of tokens; of a sampled answer those of its prompt, since it may end earlier."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    names = USAGE if is_greedy(record) else ("prompt_tokens", "input_tokens")
    return {k: usage[k] for k in names if k in usage} if isinstance(usage, dict) else None


def texts_of(answer):
    """The generated text of each choice."""
    choices = answer.get("choices", []) if isinstance(answer, dict) else []
    return [c.get("text", (c.get("message") or {}).get("content")) for c in choices]


def events_of(text):
    return [e for e in text.split("\n\n") if e]


def kind_of(event):
    """What an event is, without its contents."""
    lines = dict(line.split(": ", 1) for line in event.split("\n") if ": " in line)
    data = lines.get("data", "")
    if "event" in lines or not data.startswith("{"):
        return lines.get("event", data)
    chunk = json.loads(data)
    if "error" in chunk:
        return "error"
    if not chunk.get("choices"):
        return "usage" if chunk.get("usage") else "nothing"
    choice = chunk["choices"][0]
    delta = choice.get("delta")
    parts = ["text"] if delta is None else [k for k in ("role", "content", "reasoning", "tool_calls") if delta.get(k) is not None]
    return "+".join(parts + (["end"] if choice.get("finish_reason") else []) + (["usage"] if chunk.get("usage") else []))


def without_repeats(kinds):
    kinds = list(kinds)
    return [k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k]


def parsed(event):
    data = [line[6:] for line in event.split("\n") if line.startswith("data: {")]
    return json.loads(data[0]) if data else {}


def compare_streams(text, record):
    ours, theirs = events_of(text), record["events"]
    a, b = without_repeats(map(kind_of, ours)), without_repeats(map(kind_of, theirs))
    if a != b:
        yield f"events: {' '.join(b)}; here {' '.join(a)}"
    lacks = []
    for kind in dict.fromkeys(b):
        mine = next((e for e in ours if kind_of(e) == kind), None)
        his = next(e for e in theirs if kind_of(e) == kind)
        lacks += missing(parsed(mine), parsed(his), kind) if mine else []
    yield from (f"missing: {path}" for path in dict.fromkeys(lacks))
    last = [[u for u in (usage_of(parsed(e), record) for e in events) if u][-1:] for events in (ours, theirs)]
    for mine, his in zip(*last):
        if mine != his:
            yield f"usage: {his}; here {mine}"


def compare(record, status, text):
    """The differences of one answer from the recorded one."""
    if status != record["status"]:
        yield f"status: {record['status']}; here {status}"
        return
    if "events" in record:
        yield from compare_streams(text, record)
        return
    if "json" not in record:
        return
    try:
        ours, theirs = json.loads(text), record["json"]
    except ValueError:
        yield "form: JSON; here none"
        return
    yield from (f"missing: {path}" for path in dict.fromkeys(missing(ours, theirs)))
    if usage_of(ours, record) != usage_of(theirs, record):
        yield f"usage: {usage_of(theirs, record)}; here {usage_of(ours, record)}"
    if is_greedy(record) and texts_of(ours) != texts_of(theirs):
        yield f"text: {texts_of(theirs)!r:.100}; here {texts_of(ours)!r:.100}"


def reasons():
    return [(re.compile(r["name"]), re.compile(r["difference"], re.S), r["reason"]) for r in json.loads(REASONS.read_text())]


def reason_of(known, name, difference):
    return next((why for of_name, of_difference, why in known if of_name.fullmatch(name) and of_difference.fullmatch(difference)), None)


def ask(address, record):
    connection = http.client.HTTPConnection(*address, timeout=120)
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", **record["headers"]}
    data = record["raw"] if record["raw"] is not None else json.dumps(record["body"]) if record["body"] is not None else None
    try:
        connection.request(record["method"], record["path"], body=data, headers={k: v for k, v in headers.items() if v})
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8")
    finally:
        connection.close()


def start(quire, shared):
    """The server, as the recorded one was started, and its address."""
    server = subprocess.Popen([quire, "serve", str(pathlib.Path(shared) / "golden/api/model"), "--port", "0", *FLAGS], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        found = re.search(r"listening on http://([^\s:]+):(\d+)", line)
        if found:
            return server, (found[1], int(found[2]))
    raise SystemExit("api_compare: the server did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--quire", default="build/quire")
    parser.add_argument("--only", default="", help="questions whose name has these words")
    parser.add_argument("--unexplained", action="store_true", help="print only differences without a reason")
    o = parser.parse_args()
    server, address = start(o.quire, o.shared)
    known, n_same, n_new = reasons(), 0, 0
    asked = [r for r in records(o.shared) if o.only in r["name"]]
    try:
        for record in asked:
            found = [(d, reason_of(known, record["name"], d)) for d in compare(record, *ask(address, record))]
            n_same += not found
            n_new += sum(why is None for _, why in found)
            shown = [(d, why) for d, why in found if why is None or not o.unexplained]
            if shown or not o.unexplained:
                print(f"{record['name']}: {'as recorded' if not found else ''}")
            for difference, why in shown:
                print(f"    {difference}\n        {why or 'NO REASON'}")
    finally:
        server.terminate()
        server.wait(30)
    print(f"{len(asked)} questions, {n_same} answered as recorded, {n_new} differences without a reason")
    return 1 if n_new else 0


if __name__ == "__main__":
    sys.exit(main())
