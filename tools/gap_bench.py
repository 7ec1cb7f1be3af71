#!/usr/bin/env python3
"""Measures how far apart one tenant's streamed tokens come while another tenant sends hostile and heavy rules for its answers.

    tools/gap_bench.py [--quire build/quire] [--seconds 5] [--json] [-- FLAGS OF quire serve]

The server has the built-in model. One tenant streams completions; the time between two chunks as the client receives them is a gap. The other
tenant sends, one after the other: regexes of 30,000 parentheses and of {0,99} nested five times, a schema that refers to itself alone, one of 10 MB, all of
which must be refused; and rules that are large but compile, each a new one, whose first token it waits for. Gaps are counted alone, beside idle
requests of the other tenant (short prompts without a rule, so that what any request costs is known), and beside its rules.

The client and the server share the machine's processors: with two of them, --threads 1 leaves one to the client and to the text threads. Nothing but
the standard library is needed.
"""
import argparse
import json
import sys
import threading
import time

from fair_bench import GUEST, HOG, Server, answer, connect, part, receive, request

PATH, STREAM_TOKENS = "/v1/completions", 1500


def hostile():
    """(name, body) of rules that must be refused."""
    nested = "a"
    for _ in range(5):
        nested = f"({nested}){{0,99}}"
    large = json.dumps({"type": "object", "properties": {f"p{i}": {"type": "string", "pattern": f"^a{i}[0-9]+$"} for i in range(190000)}})
    return [("30,000 parentheses", {"guided_regex": "(" * 30000 + "a" + ")" * 30000}), ("{0,99} five times", {"guided_regex": nested}),
            ("self-$ref", {"guided_json": {"$ref": "#"}}), (f"a schema of {len(large) / 1e6:.1f} MB", {"guided_json": large})]


def heavy(i):
    """The same of rules that are large and compile; each i has its own."""
    members = {f"member_{i}_{k}": {"type": "string", "maxLength": 20 + k % 50} for k in range(400)}
    words = {"enum": [f"word {i} {k} {k * 7919 % 10007}" for k in range(2000)]}
    pattern = f"^([a-z]{{1,{20 + i % 10}}}[0-9]{{2,8}}-){{1,9}}x{i}$"
    return [("400 members", {"guided_json": {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}}),
            ("enum of 2,000", {"guided_json": words}), ("a counted regex", {"guided_regex": pattern}),
            ("any object", {"guided_json": {"type": "object", "description": str(i)}})]


class Stream:
    """Receives tokens until it is told to stop, and keeps the gaps in milliseconds."""

    def __init__(self, address):
        self.s, self.gaps, self.over, self.wrong = connect(address), [], False, None
        self.data = request(PATH, GUEST, {"prompt": "The prince looked", "max_tokens": STREAM_TOKENS, "stream": True, "ignore_eos": True, "temperature": 0})
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.over:
                self.s.sendall(self.data)
                got, last = b"", None
                while b"data: [DONE]" not in got:
                    data = receive(self.s)
                    now = time.perf_counter()
                    if last is not None:
                        self.gaps.append((now - last) * 1e3)
                    last, got = now, got[-100:] + data
                while not got.endswith(b"0\r\n\r\n"):
                    got += receive(self.s)
        except OSError as e:
            self.wrong = str(e)

    def take(self, seconds):
        """The gaps of the next seconds."""
        first = len(self.gaps)
        time.sleep(seconds)
        return self.gaps[first:]


class Rules:
    """Sends requests one after the other until it is told to stop; worst: the longest time to an answer by name, in milliseconds."""

    def __init__(self, address, bodies):
        self.s, self.bodies, self.worst, self.n, self.over, self.wrong = connect(address), bodies, {}, 0, False, None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        for name, data, status in self.bodies():
            began = time.perf_counter()
            self.s.sendall(data)
            got, body = answer(self.s)
            ms = (time.perf_counter() - began) * 1e3
            self.worst[name], self.n = max(ms, self.worst.get(name, 0)), self.n + 1
            if got != status:
                self.wrong = f"{name}: status {got}, not {status}: {body[:300].decode()}"
            if self.over or self.wrong:
                return

    def stop(self):
        self.over = True
        self.thread.join()
        self.s.close()
        if self.wrong:
            sys.exit(f"the other tenant: {self.wrong}")


def asked(rule, status):
    return request(PATH, HOG, {"prompt": "The", "max_tokens": 1, "temperature": 0, **rule}), status


def phases():
    """(name, bodies) of what the other tenant sends."""
    refused = [(name, *asked(rule, 400)) for name, rule in hostile()]
    legal = [(name, *asked(rule, 200)) for i in range(40) for name, rule in heavy(i)]
    plain = ("no rule", *asked({}, 200))

    def for_ever(items):
        def run():
            while True:
                for item in items:
                    yield item
                    time.sleep(0.005)
        return run
    return [("alone", None), ("plain requests", for_ever([plain])), ("hostile rules", for_ever(refused)), ("heavy rules", for_ever(legal))]


def summary(gaps):
    return {"n": len(gaps), "p50": part(gaps, 0.5), "p99": part(gaps, 0.99), "p999": part(gaps, 0.999), "max": max(gaps)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quire", default="build/quire")
    p.add_argument("--seconds", type=float, default=5, help="of each phase")
    p.add_argument("--json", action="store_true")
    p.add_argument("flags", nargs="*", help="flags of quire serve, behind --")
    o = p.parse_args()
    todo, results = phases(), {}
    server = Server(o.quire, o.flags)
    try:
        stream = Stream(server.address)
        stream.take(1)
        for name, bodies in todo:
            rules = Rules(server.address, bodies) if bodies else None
            results[name] = summary(stream.take(o.seconds))
            if rules:
                rules.stop()
                results[name]["answers"], results[name]["ms"] = rules.n, rules.worst
            if stream.wrong:
                sys.exit(f"the stream: {stream.wrong}")
    finally:
        server.stop()
    if o.json:
        print(json.dumps(results))
        return
    print(f"{'ms between two chunks':24}{'gaps':>8}{'median':>10}{'99%':>10}{'99.9%':>10}{'max':>10}{'answers':>9}")
    for name, r in results.items():
        print(f"{name:24}{r['n']:8}{r['p50']:10.2f}{r['p99']:10.2f}{r['p999']:10.2f}{r['max']:10.2f}{r.get('answers', 0):9}")
    print("longest time to an answer, ms: " + ", ".join(f"{name} {ms:.0f}" for r in results.values() for name, ms in r.get("ms", {}).items()))


if __name__ == "__main__":
    main()
