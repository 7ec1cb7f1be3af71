#!/usr/bin/env python3
"""Measures how much later one tenant's short chats have their first token while another tenant fills the text pool.

    tools/fair_bench.py [--quire build/quire] [--chats 600] [--phases 10] [--accepted] [--json] [-- FLAGS OF quire serve]

The server has the built-in model with 2^20 positions. One tenant sends sixteen prompts, a little longer than the model takes (3.7 MB
each, so that all fit into the 64 MB of large bodies), and a chat whose template runs into its step limit: each is sent again when it is
answered. The other tenant asks chats of some 100 tokens, one at a time, at random times. Phases without and with the first tenant
alternate, so that both see the same machine. With --accepted the prompts are as long as the model takes, so that the engine computes them
too. A phase ends after --seconds, and a chat without a token by then is given up: it counts as one that took that long. An answer of any
other status than these requests have is an error.

The client runs on the processors that it measures, so its own delays are kept out: `wire` ends when the kernel has the first token's
bytes for the client, `server` is first_token_ms of the server's log, from the request's head to the token on the loop's thread. The parts
are the server's own report (`explain`); `rest` is what is left of `server`. The other tenant's client is a process of low priority, as if
it were elsewhere. The spread is the middle nine tenths of the differences when the pairs of phases are drawn again and again. Nothing but
the standard library is needed.
"""
import argparse
import contextlib
import json
import multiprocessing
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HOG, GUEST, POSITIONS, LONG_PROMPTS = "hog-k-1", "guest-k-2", 1 << 20, 16
TEMPLATE = """{% if messages[0].content == 'slow' %}
{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}
{% endif %}
{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}"""
SENTENCE = "The prince looked at her and said nothing, for it was late in the year and the snow lay on the hills. "
STAGES = ("tokenise", "queue", "prefill")
NAMES = ("wire", "server", *STAGES, "rest")
PARTS = (0.5, 0.9, 0.99)
SO_TIMESTAMPNS = 35  # of Linux: recvmsg says when the kernel had the bytes
NUMBER = b"00000000"  # at a long prompt's beginning, counted up so that no two are the same
SETTLE_S = 0.5
ALLOWED_MS = 5


class Server:
    """quire serve, and what its log says of the requests with an id."""

    def __init__(self, quire, flags):
        self.keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
        self.keys.write(f"hog:{HOG}\nguest:{GUEST}\n")
        self.keys.flush()
        self.lines, said, self.address = [], [], None
        command = [quire, "serve", "builtin", "--port", "0", "--api-key-file", self.keys.name, "--log-format", "json", *flags]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            said.append(line)
            found = re.search(r"listening on http://([^\s:\"]+):(\d+)", line)
            if found:
                self.address = (found[1], int(found[2]))
                break
        if self.address is None:
            sys.exit("quire serve did not start:\n" + "".join(said))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        self.lines.extend(self.process.stderr)

    def stop(self):
        for ask in (self.process.terminate, self.process.terminate, self.process.kill):
            ask()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
                break
        self.reader.join()
        self.keys.close()

    def first_token_ms(self):
        """By the request's id."""
        found = {}
        for line in self.lines:
            if '"first_token_ms"' in line:
                fields = json.loads(line)
                found[fields["id"]] = fields["first_token_ms"]
        return found


def request(path, key, body, name="-"):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nX-Request-Id: {name}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def connect(address):
    s = socket.create_connection(address)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


# ---- the other tenant ----

def answer(s):
    """(status, body) of a response with a length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += receive(s)
    head, _, body = data.partition(b"\r\n\r\n")
    n = int(re.search(rb"content-length: (\d+)", head, re.I)[1])
    while len(body) < n:
        body += receive(s)
    return int(head.split()[1]), body


def receive(s):
    """Bytes that came, at least one."""
    data = s.recv(65536)
    if not data:
        raise ConnectionError("the server closed a connection")
    return data


class Hog:
    """Keeps one request in the server until it is told to stop. wrong: what was not as expected, if anything."""

    def __init__(self, address, data, status, counter):
        self.s, self.data, self.status, self.counter = connect(address), data, status, counter
        self.n, self.over, self.wrong = 0, False, None
        self.at = data.find(NUMBER)
        self.sent = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.over and self.wrong is None:
                if self.at >= 0:
                    self.data[self.at:self.at + len(NUMBER)] = b"%08d" % next(self.counter)
                self.s.sendall(self.data)
                self.sent.set()
                status, body = answer(self.s)
                self.n += 1
                self.wrong = None if status == self.status else f"status {status}, not {self.status}: {body.decode()}"
        except OSError as e:
            self.wrong = None if self.over else str(e)
        self.sent.set()

    def stop(self):
        self.over = True
        with contextlib.suppress(OSError):  # the server may have closed it
            self.s.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.s.close()


def hogs_main(pipe, address, prompt, slow, status):
    """A process: "on" and "off" begin and end the load; each is answered by how many answers there were and what was wrong."""
    os.nice(10)
    counter, hogs = iter(range(10 ** 8)), []
    datas = [(bytearray(prompt), status) for _ in range(LONG_PROMPTS)] + [(bytearray(slow), 400)]
    for said in iter(pipe.recv, "quit"):
        if said == "on":
            hogs = [Hog(address, data, status, counter) for data, status in datas]
            for h in hogs:
                h.sent.wait()
        else:
            for h in hogs:
                h.stop()
        pipe.send((sum(h.n for h in hogs), next((h.wrong for h in hogs if h.wrong is not None), None)))


class Load:
    def __init__(self, *args):
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=hogs_main, args=(theirs, *args), daemon=True)
        self.process.start()
        self.n = 0

    def set(self, on):
        self.pipe.send("on" if on else "off")
        n, wrong = self.pipe.recv()
        self.n += 0 if on else n
        if wrong is not None:
            sys.exit(f"the other tenant: {wrong}")
        time.sleep(SETTLE_S)

    def quit(self):
        with contextlib.suppress(OSError):
            self.pipe.send("quit")
        self.process.join(10)


def long_prompt(quire, accepted):
    """A prompt that has a few tokens more than the model takes, or a few less."""
    command = [quire, "tokenize", "builtin", "-f", "-", "--ids"]
    done = subprocess.run(command, input=SENTENCE * 1000, capture_output=True, text=True, check=True)
    a_sentence = len(json.loads(done.stdout)) / 1000
    n = int(POSITIONS / a_sentence)
    return f"{NUMBER.decode()} " + SENTENCE * (n - 3 if accepted else n + 3)


# ---- the tenant whose time counts ----

def first_token(s, data):
    """ms until the kernel had the first chunk with text, and the server's report."""
    got, first = b"", None
    began = time.time_ns()
    s.sendall(data)
    while b"data: [DONE]" not in got or not got.endswith(b"0\r\n\r\n"):
        data, more, _, _ = s.recvmsg(65536, 64)
        came = time.time_ns()
        if not data:
            raise ConnectionError("the server closed a connection")
        got += data
        if first is None and b'"content":' in got.replace(b'"content":""', b""):
            for level, kind, value in more:
                if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                    seconds, ns = struct.unpack("qq", value[:16])
                    came = seconds * 10 ** 9 + ns
            first = (came - began) / 1e6
    if first is None:
        sys.exit(got.decode())
    report = json.loads(re.findall(rb"data: (\{.*\"explain\".*\})", got)[-1])["explain"]["choices"][0]
    return first, report


def open_guest(address):
    s = connect(address)
    s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return s


def chats(address, n, seconds, phase, rng):
    """At most n short chats, one after the other, at random times: [{"id", "wire" and the stages, in ms}]. The last one has no stages where
    it was given up."""
    text = "Tell me of the prince, the hills and the snow. " * 7
    bodies = [{"messages": [{"role": "user", "content": f"{rng.random()} {text}"}], "max_tokens": 2, "stream": True, "temperature": 0,
               "explain": True} for _ in range(n)]
    asked = [(f"{phase}-{i}", request("/v1/chat/completions", GUEST, body, f"{phase}-{i}")) for i, body in enumerate(bodies)]
    end, done = time.monotonic() + seconds, []
    s = open_guest(address)
    for name, data in asked:
        time.sleep(rng.uniform(0, 0.02))
        s.settimeout(max(end - time.monotonic(), 0.001))
        try:
            wire, report = first_token(s, data)
        except TimeoutError:
            done.append({"id": None, "wire": seconds * 1e3, **{stage: 0 for stage in STAGES}})
            break
        done.append({"id": name, "wire": wire, **{stage: report["stages_us"][stage] / 1e3 for stage in STAGES}})
        if time.monotonic() > end:
            break
    s.close()
    return done


# ---- figures ----

def part(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))]


def join(phases, name):
    return [c[name] for phase in phases for c in phase]


def later(pairs, name):
    """By how much the loaded phases' parts are over the idle ones': [ms, lowest, highest] for each of PARTS."""
    def differences(drawn):
        idle, loaded = join([p[0] for p in drawn], name), join([p[1] for p in drawn], name)
        return [part(loaded, p) - part(idle, p) for p in PARTS]

    rng = random.Random(1)
    draws = sorted_columns([differences(rng.choices(pairs, k=len(pairs))) for _ in range(400)])
    return [[ms, column[20], column[379]] for ms, column in zip(differences(pairs), draws)]


def sorted_columns(rows):
    return [sorted(column) for column in zip(*rows)]


def show(pairs, n_answers):
    n = [sum(len(p[i]) for p in pairs) for i in (0, 1)]
    late = sum(c["id"] is None for pair in pairs for phase in pair for c in phase)
    print(f"ms to the first token of {n[0]} chats on an idle server and {n[1]} on a loaded one; the other tenant had {n_answers} answers"
          + (f"; {late} chats were given up" if late > 0 else ""))
    print(f"{'':10}" + "".join(f"{name + ' p' + format(p * 100, 'g'):>12}" for name in ("idle", "loaded") for p in PARTS)
          + "".join(f"{'later p' + format(p * 100, 'g'):>26}" for p in PARTS))
    for name in NAMES:
        figures = [part(join([p[i] for p in pairs], name), q) for i in (0, 1) for q in PARTS]
        print(f"{name:10}" + "".join(f"{ms:12.2f}" for ms in figures)
              + "".join(f"{f'{ms:.2f} ({low:.2f}..{high:.2f})':>26}" for ms, low, high in later(pairs, name)))
    for name in NAMES[:2]:
        most = max(ms for ms, _, _ in later(pairs, name))
        print(f"{name}: at most {most:.2f} ms later, {'within' if most <= ALLOWED_MS else 'OVER'} {ALLOWED_MS} ms")


def measure(o, server, load):
    rng, pairs = random.Random(2), []
    chats(server.address, 20, 10, "first", rng)
    for i in range(o.phases):
        pair = []
        for on in (False, True):
            load.set(on)
            pair.append(chats(server.address, -(-o.chats // o.phases), o.seconds, f"{i}{'loaded' if on else 'idle'}", rng))
        pairs.append(pair)
    load.set(False)
    return pairs


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quire", default="build/quire")
    p.add_argument("--chats", type=int, default=600, help="of each kind")
    p.add_argument("--phases", type=int, default=10, help="of each kind")
    p.add_argument("--seconds", type=float, default=3, help="a phase takes at most, so that --accepted ends")
    p.add_argument("--accepted", action="store_true", help="the long prompts fit, so that the engine computes them")
    p.add_argument("--json", action="store_true")
    p.add_argument("flags", nargs="*", help="flags of quire serve, after --")
    o = p.parse_args()
    prompt = request("/v1/completions", HOG, {"prompt": long_prompt(o.quire, o.accepted), "max_tokens": 1})
    slow = request("/v1/chat/completions", HOG, {"messages": [{"role": "user", "content": "slow"}], "max_tokens": 1})
    server = Server(o.quire, ["--chat-template", TEMPLATE, "--max-model-len", str(POSITIONS), "--override-kv",
                              f"llama.context_length=int:{POSITIONS}", *o.flags])
    load = Load(server.address, prompt, slow, 200 if o.accepted else 400)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)  # the client waits for the server, not for a processor
    try:
        pairs = measure(o, server, load)
    finally:
        load.quit()
        server.stop()
    first = server.first_token_ms()
    for c in (c for pair in pairs for phase in pair for c in phase):
        c["server"] = first.get(c["id"], c["wire"])
        c["rest"] = c["server"] - sum(c[stage] for stage in STAGES)
    if o.json:
        print(json.dumps({"later": {name: later(pairs, name) for name in NAMES}, "hog_answers": load.n, "pairs": pairs}))
        return
    show(pairs, load.n)


if __name__ == "__main__":
    main()
