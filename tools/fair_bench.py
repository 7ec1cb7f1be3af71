#!/usr/bin/env python3
"""Measures how much later one tenant's short chats have their first token while another tenant fills the text pool.

    tools/fair_bench.py [--quire build/quire] [--chats 200] [--accepted] [--json] [-- FLAGS OF quire serve]

The server has the built-in model with 2^20 positions. One tenant sends sixteen prompts, a little longer than the model takes (3.7 MB each, so that
all fit into the 64 MB of large bodies), and a chat whose template runs into its step limit: each is sent again when it is answered. The other tenant
asks chats of some 100 tokens, one at a time. With --accepted the prompts are as long as the model takes, so that the engine computes them too.
An answer of any other status than these requests have is an error.

The client must not take the processor from the server: requests are made before, threads wait in recv, sockets are plain. Where the time went is
what the server's own report (`explain`) says: text, queue and prefill; the rest is HTTP, and the client. Nothing but the standard library is needed.
"""
import argparse
import contextlib
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

HOG, GUEST, POSITIONS, LONG_PROMPTS = "hog-k-1", "guest-k-2", 1 << 20, 16
TEMPLATE = """{% if messages[0].content == 'slow' %}{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}{% endif %}
{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}"""
SENTENCE = "The prince looked at her and said nothing, for it was late in the year and the snow lay on the hills. "
STAGES = ("tokenise", "queue", "prefill")


def serve(quire, flags):
    """The process of a server of the built-in model with both tenants, its address, and its file of keys."""
    keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
    keys.write(f"hog:{HOG}\nguest:{GUEST}\n")
    keys.flush()
    process = subprocess.Popen([quire, "serve", "builtin", "--port", "0", "--api-key-file", keys.name, *flags],
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        found = re.search(r"listening on http://([^\s:]+):(\d+)", line)
        if found:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, (found[1], int(found[2])), keys
    sys.exit("quire serve did not start")


def start(quire, flags):
    return serve(quire, ["--override-kv", f"llama.context_length=int:{POSITIONS}", "--max-model-len", str(POSITIONS), "--chat-template", TEMPLATE, *flags])


def request(path, key, body):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def connect(address):
    s = socket.create_connection(address)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def receive(s):
    """Bytes that came, at least one."""
    data = s.recv(65536)
    if not data:
        raise ConnectionError("the server closed a connection")
    return data


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


def first_token(s, data):
    """Seconds until the first chunk with text, and the server's report."""
    began, got, first = time.perf_counter(), b"", None
    s.sendall(data)
    while b"data: [DONE]" not in got:
        got += receive(s)
        if first is None and b'"content":' in got.replace(b'"content":""', b""):
            first = time.perf_counter() - began
    while not got.endswith(b"0\r\n\r\n"):
        got += receive(s)
    if first is None:
        sys.exit(got.decode())
    report = json.loads(re.findall(rb"data: (\{.*\"explain\".*\})", got)[-1])["explain"]["choices"][0]
    return first, report


def chats(address, n, seed):
    """n short chats, one after the other, at random times: lists of milliseconds by name."""
    rng = random.Random(seed)
    text = "Tell me of the prince, the hills and the snow. " * 7
    data = [request("/v1/chat/completions", GUEST, {"messages": [{"role": "user", "content": f"{rng.random()} {text}"}], "max_tokens": 2, "stream": True,
                                                    "temperature": 0, "explain": True}) for _ in range(n)]
    times = {name: [] for name in ("first", *STAGES, "rest")}
    s = connect(address)
    for d in data:
        time.sleep(rng.uniform(0, 0.02))
        first, report = first_token(s, d)
        stages = [report["stages_us"][name] / 1e3 for name in STAGES]
        for name, ms in zip(times, (first * 1e3, *stages, first * 1e3 - sum(stages))):
            times[name].append(ms)
    s.close()
    return times


class Hog:
    """Keeps one request in the server until it is told to stop. wrong: what was not as expected, if anything."""

    def __init__(self, address, data, status):
        self.s, self.data, self.status, self.n, self.over, self.wrong = connect(address), data, status, 0, False, None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.over and self.wrong is None:
                self.s.sendall(self.data)
                status, body = answer(self.s)
                self.n += 1
                self.wrong = None if status == self.status else f"status {status}, not {self.status}: {body.decode()}"
        except OSError as e:
            self.wrong = None if self.over else str(e)

    def stop(self):
        self.over = True
        with contextlib.suppress(OSError):  # the server may have closed it
            self.s.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.s.close()


def long_prompt(quire, accepted):
    """A prompt that has a few tokens more than the model takes, or a few less."""
    done = subprocess.run([quire, "tokenize", "builtin", "-f", "-", "--ids"], input=SENTENCE * 1000, capture_output=True, text=True, check=True)
    a_sentence = len(json.loads(done.stdout)) / 1000
    n = int(POSITIONS / a_sentence)
    return SENTENCE * (n - 3 if accepted else n + 3)


def part(values, p):
    return sorted(values)[min(len(values) - 1, int(len(values) * p))]


def summary(times):
    return {name: {"p50": part(v, 0.5), "p90": part(v, 0.9), "p99": part(v, 0.99), "max": max(v)} for name, v in times.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quire", default="build/quire")
    p.add_argument("--chats", type=int, default=200)
    p.add_argument("--accepted", action="store_true", help="the long prompts fit, so that the engine computes them")
    p.add_argument("--json", action="store_true")
    p.add_argument("flags", nargs="*", help="flags of quire serve, behind --")
    o = p.parse_args()
    prompt = request("/v1/completions", HOG, {"prompt": long_prompt(o.quire, o.accepted), "max_tokens": 1})
    slow = request("/v1/chat/completions", HOG, {"messages": [{"role": "user", "content": "slow"}], "max_tokens": 1})
    process, address, keys = start(o.quire, o.flags)
    try:
        chats(address, 20, 1)
        idle = summary(chats(address, o.chats, 2))
        hogs = [Hog(address, prompt, 200 if o.accepted else 400) for _ in range(LONG_PROMPTS)] + [Hog(address, slow, 400)]
        time.sleep(1)
        loaded = summary(chats(address, o.chats, 3))
        n_done = sum(h.n for h in hogs)
        for h in hogs:
            h.stop()
        wrong = [h.wrong for h in hogs if h.wrong is not None]
        if wrong:
            sys.exit(f"the other tenant: {wrong[0]}")
    finally:
        process.terminate()
        process.wait()
        keys.close()
    if o.json:
        print(json.dumps({"idle": idle, "loaded": loaded, "hog_answers": n_done}))
        return
    print(f"ms to the first token of {o.chats} chats; the other tenant had {n_done} answers")
    print(f"{'':10}" + "".join(f"{name + ' ' + q:>14}" for name in ("idle", "loaded") for q in ("p50", "p90", "p99", "max")))
    for name in idle:
        print(f"{name:10}" + "".join(f"{t[name][q]:14.2f}" for t in (idle, loaded) for q in ("p50", "p90", "p99", "max")))


if __name__ == "__main__":
    main()
