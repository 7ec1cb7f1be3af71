#!/usr/bin/env python3
"""Measures how far apart one tenant's streamed tokens come while another tenant sends hostile and heavy rules for its answers.

    tools/gap_bench.py [--quire build/quire] [--masks] [--rounds 5] [--seconds 1.6] [--json] [-- FLAGS OF quire serve]

The server has the built-in model. One tenant streams completions; the time between two chunks, as the kernel has them for the client, is a gap.
The other tenant sends, one after the other: regexes of 30,000 parentheses and of {0,99} nested five times, a schema that refers to itself alone,
one of 10 MB, all of which must be refused; and rules that are large but compile, each a new one, whose first token it waits for. Gaps are counted
alone, beside short prompts without a rule (so that what any request costs is known), and beside its rules.

All share the machine's processors, so the other tenant's client and the kernel's copies of its bytes delay the server as well. They are measured
separately: at the same pace the same client sends the same bytes to a sink, a process of the server's priority that reads them, throws them away
and answers as the server did. What gaps beside the server's refusals have over those beside the sink's is the server's own part.

With --masks the other tenant sends 16 streams at a time instead, each under a new rule whose masks take long: regexes of nested counts, ambiguous
grammars, palindromes, and one of them whose tokens are guessed by drafts. Their gaps are compared to those beside 16 streams without a rule.

Phases alternate in rounds; a figure is the median of the rounds, but for the longest gap of all. The other tenant's client is a process of low
priority, as if it were elsewhere. Nothing but the standard library is needed.
"""
import argparse
import contextlib
import json
import multiprocessing
import os
import re
import socket
import statistics
import struct
import sys
import threading
import time

from fair_bench import GUEST, HOG, SO_TIMESTAMPNS, Server, answer, connect, open_guest, part, receive, request

PATH, STREAM_TOKENS = "/v1/completions", 1500
PAUSE_S, SETTLE_S = 0.005, 0.3  # between an answer and the next request; between a phase's first request and the first gap that counts


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


def ambiguous(i, rules):
    """A grammar, which a rule that nothing calls makes a new one."""
    return {"grammar": f'{rules}\nz{i} ::= "q"'}


def slow_masks(i):
    """The same of rules that are short, compile, and whose masks take long."""
    letters = " | ".join(f'"{chr(97 + k)}" p "{chr(97 + k)}"' for k in range(26))
    return {"a regex of counts": {"regex": f"([^0]{{0,120}}[^1]{{0,121}}[^2]{{0,122}}[^3]{{0,123}}){{1,40}}(z{i}|y)"},
            "counts of counts": {"regex": f"(.{{0,400}}){{0,400}}x{i}"},
            "s ::= s s": ambiguous(i, 'root ::= s\ns ::= s s s | s s | "a" | "b" s "b" | [c-z ]'),
            "palindromes": ambiguous(i, f'root ::= p+\np ::= {letters} | [a-z]? | " " p " "'),
            "palindromes, drafts": ambiguous(i, f'root ::= p+\np ::= {letters} | [a-z]? | " " p " "')}


class Stream:
    """Receives tokens until it is told to stop, and keeps the gaps in milliseconds."""

    def __init__(self, address):
        self.s, self.gaps, self.over, self.wrong = open_guest(address), [], False, None
        self.data = request(PATH, GUEST, {"prompt": "The prince looked", "max_tokens": STREAM_TOKENS, "stream": True, "ignore_eos": True, "temperature": 0})
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.over:
                self.s.sendall(self.data)
                got, last = b"", None
                while not got.endswith(b"0\r\n\r\n"):
                    data, came = stamped(self.s)
                    if last is not None:
                        self.gaps.append((came - last) / 1e6)
                    last, got = came, got[-100:] + data
        except OSError as e:
            self.wrong = str(e)

    def take(self, seconds):
        """The gaps of the next seconds."""
        first = len(self.gaps)
        time.sleep(seconds)
        return self.gaps[first:]


def stamped(s):
    """Bytes, at least one, and when the kernel had them, in nanoseconds."""
    data, more, _, _ = s.recvmsg(65536, 64)
    if not data:
        raise ConnectionError("the server closed a connection")
    for level, kind, value in more:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, ns = struct.unpack("qq", value[:16])
            return data, seconds * 10 ** 9 + ns
    return data, time.time_ns()


# ---- the other tenant ----

class Rules:
    """Sends requests one after the other until it is told to stop. begun: when each began, in seconds since the first; worst: the longest time to
    an answer by name, in milliseconds. at: when to begin each instead, at the earliest."""

    def __init__(self, address, bodies, at):
        self.s, self.bodies, self.at, self.begun, self.worst, self.over, self.wrong = connect(address), bodies, at, [], {}, False, None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        first = time.perf_counter()
        while not self.over and self.wrong is None and (self.at is None or len(self.begun) < len(self.at)):
            name, data, status = self.bodies[len(self.begun) % len(self.bodies)]
            time.sleep(PAUSE_S if self.at is None else max(first + self.at[len(self.begun)] - time.perf_counter(), 0))
            began = time.perf_counter()
            self.begun.append(began - first)
            self.s.sendall(data)
            got, body = answer(self.s)
            self.worst[name] = max((time.perf_counter() - began) * 1e3, self.worst.get(name, 0))
            if status is not None and got != status:
                self.wrong = f"{name}: status {got}, not {status}: {body[:300].decode()}"

    def stop(self):
        self.over = True
        self.thread.join()
        self.s.close()


def rules_main(pipe, bodies_by_name):
    """A process: (address, name, at) begins to send those bodies, None ends that and is answered by what Rules has."""
    os.nice(10)
    rules = []
    for said in iter(pipe.recv, "quit"):
        if said is not None:
            address, name, at = said
            n = MASK_STREAMS if bodies_by_name[name][0][2] is None else 1
            rules = [Rules(address, bodies_by_name[name][k::n], at) for k in range(n)]
        else:
            for r in rules:
                r.over = True
            for r in rules:
                r.stop()
            worst = {name: max(r.worst.get(name, 0) for r in rules) for r in rules for name in r.worst}
            pipe.send((sum((r.begun for r in rules), []), worst, next((r.wrong for r in rules if r.wrong), None)))


class Load:
    def __init__(self, bodies_by_name):
        self.names = list(bodies_by_name)
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=rules_main, args=(theirs, bodies_by_name), daemon=True)
        self.process.start()

    def begin(self, address, name, at=None):
        self.pipe.send((address, name, at))
        time.sleep(SETTLE_S)

    def end(self):
        self.pipe.send(None)
        begun, worst, wrong = self.pipe.recv()
        if wrong:
            sys.exit(f"the other tenant: {wrong}")
        return begun, worst

    def quit(self):
        with contextlib.suppress(OSError):
            self.pipe.send("quit")
        self.process.join(10)


def sink_main(listener):
    """A process: reads requests, throws them away, and answers 400. One connection at a time."""
    body = json.dumps({"error": {"message": "-" * 120, "type": "invalid_request_error", "param": "guided_json", "code": 400}}).encode()
    refusal = f"HTTP/1.1 400 Bad Request\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    piece = memoryview(bytearray(65536))
    while True:
        s, _ = listener.accept()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError):
            while True:
                data = b""
                while b"\r\n\r\n" not in data:
                    data += receive(s)
                head, _, begun = data.partition(b"\r\n\r\n")
                left = int(re.search(rb"content-length: (\d+)", head, re.I)[1]) - len(begun)
                while left > 0:
                    n = s.recv_into(piece, min(left, len(piece)))
                    if n == 0:
                        raise ConnectionError
                    left -= n
                s.sendall(refusal)
        s.close()


class Sink:
    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        self.process = multiprocessing.get_context("fork").Process(target=sink_main, args=(listener,), daemon=True)
        self.process.start()


def asked(rule, status):
    return request(PATH, HOG, {"prompt": "The", "max_tokens": 1, "temperature": 0, **rule}), status


def bodies():
    """What the other tenant sends, by the phase's name: (name, body, status)."""
    return {"plain requests": [("no rule", *asked({}, 200))], "hostile rules": [(name, *asked(rule, 400)) for name, rule in hostile()],
            "heavy rules": [(name, *asked(rule, 200)) for i in range(40) for name, rule in heavy(i)]}


MASK_STREAMS, MASK_ANSWERS = 16, 2000


def mask_bodies():
    """The same with --masks; a rule may be refused while it is obeyed."""
    def streamed(name, i, rule):
        drafts = {"repetition_penalty": 1.0, "temperature": 0} if "drafts" in name else {"temperature": 1, "seed": i}
        return name, request(PATH, HOG, {"prompt": "Once", "max_tokens": 300, **drafts, **rule}), None
    names = list(slow_masks(0))
    return {"plain streams": [streamed("no rule", i, {"ignore_eos": True}) for i in range(MASK_ANSWERS)],
            **{name: [streamed(name, i, slow_masks(k * 100000 + i)[name]) for i in range(MASK_ANSWERS)] for k, name in enumerate(names)}}


# ---- phases and figures ----

ALONE, PLAIN, HOSTILE, SINK, HEAVY = "alone", "plain requests", "hostile rules", "the same to a sink", "heavy rules"
PARTS = {"median": 0.5, "99%": 0.99, "99.9%": 0.999}


def measure(o, server, sink, load):
    """A round: {phase: gaps, number of answers, longest time to one by name}."""
    found, begun = {}, None
    for name in (ALONE, PLAIN, HOSTILE, SINK, HEAVY):
        if name == SINK:
            load.begin(sink.address, HOSTILE, begun)
        elif name != ALONE:
            load.begin(server.address, name)
        gaps = stream_gaps(o, server)
        begun, worst = load.end() if name != ALONE else ([], {})
        found[name] = {"gaps": gaps, "answers": len(begun), "ms": worst if name != SINK else {}}
    return found


def measure_masks(o, server, load):
    """A round with --masks."""
    found = {}
    for name in ("alone", *load.names):
        if name != "alone":
            load.begin(server.address, name)
        gaps = stream_gaps(o, server)
        begun, worst = load.end() if name != "alone" else ([], {})
        found[name] = {"gaps": gaps, "answers": len(begun), "ms": worst}
    return found


def stream_gaps(o, server):
    gaps = server.stream.take(o.seconds)
    if server.stream.wrong or not gaps:
        sys.exit(f"the stream: {server.stream.wrong}")
    return gaps


def summary(rounds):
    """{phase: figures}."""
    results = {}
    for name in rounds[0]:
        phases = [r[name] for r in rounds]
        results[name] = {"n": sum(len(p["gaps"]) for p in phases), "max": max(max(p["gaps"]) for p in phases), "answers": sum(p["answers"] for p in phases),
                         **{q: statistics.median(part(p["gaps"], at) for p in phases) for q, at in PARTS.items()},
                         "ms": {n: max(p["ms"][n] for p in phases if n in p["ms"]) for n in phases[0]["ms"]}}
    return results


def over(rounds, name, base):
    """By how much 99.9% of a phase's gaps is over another's of the same round: (median, lowest, highest)."""
    more = [part(r[name]["gaps"], 0.999) - part(r[base]["gaps"], 0.999) for r in rounds]
    return statistics.median(more), min(more), max(more)


def compared(rounds):
    """(name, base, what) of phases whose tails are compared."""
    if HOSTILE in rounds[0]:
        return ((HOSTILE, PLAIN, "all"), (SINK, PLAIN, "client and kernel"), (HOSTILE, SINK, "the server's own part"))
    return tuple((name, "plain streams", "all") for name in list(rounds[0])[2:])


def show(rounds):
    results = summary(rounds)
    print(f"{'ms between two chunks':24}{'gaps':>8}" + "".join(f"{q:>10}" for q in PARTS) + f"{'max':>10}{'answers':>9}")
    for name, r in results.items():
        print(f"{name:24}{r['n']:8}" + "".join(f"{r[q]:10.2f}" for q in PARTS) + f"{r['max']:10.2f}{r['answers']:9}")
    for name, base, what in compared(rounds):
        print(f"99.9%, {name} over {base}, {what}: " + "{:.2f} ({:.2f}..{:.2f})".format(*over(rounds, name, base)))
    print("longest time to an answer, ms: " + ", ".join(f"{name} {ms:.0f}" for r in results.values() for name, ms in r["ms"].items()))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quire", default="build/quire")
    p.add_argument("--masks", action="store_true", help="rules whose masks take long, on 16 streams at a time")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=1.6, help="of each phase of a round")
    p.add_argument("--json", action="store_true")
    p.add_argument("flags", nargs="*", help="flags of quire serve, after --")
    o = p.parse_args()
    sink = Sink()  # first: it has no end of the other's pipe then
    load = Load(mask_bodies() if o.masks else bodies())
    server = Server(o.quire, o.flags or (["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}'] if o.masks else []))
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)  # the client waits for the server, not for a processor
    try:
        server.stream = Stream(server.address)
        server.stream.take(1)
        rounds = [measure_masks(o, server, load) if o.masks else measure(o, server, sink, load) for _ in range(o.rounds)]
    finally:
        load.quit()
        sink.process.kill()
        server.stop()
    if o.json:
        print(json.dumps({**summary(rounds), "over": {f"{a} over {b}": over(rounds, a, b) for a, b, _ in compared(rounds)}}))
    else:
        show(rounds)


if __name__ == "__main__":
    main()
