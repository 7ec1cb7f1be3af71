#!/usr/bin/env python3
"""Sends one workload to any server with OpenAI's completions endpoint, and prints throughput and latency, so that two servers can be compared.

    tools/serve_bench.py http://127.0.0.1:8000 --model NAME [--workload shared|chats|unique|all] [--clients 8] [--json]

  shared   questions of a few dozen words, each after one of two long prefixes
  chats    conversations of some turns, each turn after all earlier ones
  unique   prompts with nothing in common

Texts are drawn from a small list of words by a fixed seed, answers have a given length (ignore_eos, which Quire, vLLM and SGLang take), and are
sampled greedily. Times are those of a client: from sending to the first piece and to the last. A chat's next turn is sent when the one before has
ended. Nothing but the standard library is needed.
"""
import argparse
import concurrent.futures
import dataclasses
import http.client
import json
import random
import re
import statistics
import sys
import threading
import time
import urllib.parse

WORDS = ("the prince looked at her and said that it was time to go home for supper while an old man in the garden sang of war peace snow horses and "
         "letters from Moscow which nobody had read since morning").split()
SEED, QUESTION, PREFIX, TURN, UNIQUE = 7, 30, 600, 40, 200  # words


@dataclasses.dataclass
class Answer:
    first: float  # seconds
    whole: float
    n_tokens: int
    n_prompt: int
    n_cached: int
    text: str
    gaps: list  # seconds between two pieces that follow each other


def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def jobs(name, n, rng):
    """Lists of what one client says, turn after turn."""
    if name == "shared":
        prefixes = [words(rng, PREFIX) for _ in range(2)]
        return [[f"{prefixes[i % 2]} {words(rng, QUESTION)}"] for i in range(n)]
    if name == "chats":
        return [[words(rng, TURN) for _ in range(4)] for _ in range(max(1, n // 4))]
    return [[words(rng, UNIQUE)] for _ in range(n)]


class Server:
    def __init__(self, url, model, key):
        self.url, self.model = urllib.parse.urlsplit(url), model
        self.headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}

    def complete(self, prompt, n_tokens):
        body = {"model": self.model, "prompt": prompt, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.hostname, self.url.port, timeout=600)
        start = time.monotonic()
        try:
            connection.request("POST", self.url.path.rstrip("/") + "/v1/completions", json.dumps(body), self.headers)
            reply = connection.getresponse()
            if reply.status != 200:
                raise RuntimeError(f"{reply.status}: {reply.read(500).decode(errors='replace')}")
            return self.read(reply, start, n_tokens)
        finally:
            connection.close()

    @staticmethod
    def read(reply, start, n_tokens):
        last, pieces, gaps, usage, first = None, [], [], {}, None
        for line in reply:
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event.get("choices") or []:
                now = time.monotonic()
                if last is None:
                    first = now - start
                else:
                    gaps.append(now - last)
                last = now
                pieces.append(choice.get("text") or "")
        if first is None:
            raise RuntimeError("the answer had no piece")
        details = usage.get("prompt_tokens_details") or {}
        return Answer(first, time.monotonic() - start, usage.get("completion_tokens", n_tokens), usage.get("prompt_tokens", 0), details.get("cached_tokens") or 0, "".join(pieces), gaps)


def say_all(server, turns, n_tokens):
    said, answers = "", []
    for turn in turns:
        said = f"{said} {turn}".strip()
        answers.append(server.complete(said, n_tokens))
        said += answers[-1].text
    return answers


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def measure(server, name, o):
    todo, answers, lock = jobs(name, o.requests, random.Random(SEED)), [], threading.Lock()

    def work(turns):
        found = say_all(server, turns, o.tokens)
        with lock:
            answers.extend(found)

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(o.clients) as pool:
        for done in [pool.submit(work, turns) for turns in todo]:
            done.result()
    took, first, each = time.monotonic() - start, [a.first for a in answers], [(a.whole - a.first) / max(1, a.n_tokens - 1) for a in answers]
    gaps = [gap for a in answers for gap in a.gaps] or [0.0]
    n_prompt = sum(a.n_prompt for a in answers)
    return {"workload": name, "requests": len(answers), "prompt_tokens": n_prompt, "cached": 100 * sum(a.n_cached for a in answers) / max(1, n_prompt),
            "seconds": took, "requests_per_s": len(answers) / took, "tokens_per_s": sum(a.n_tokens for a in answers) / took,
            "first_ms": 1e3 * statistics.median(first), "first_99_ms": 1e3 * percentile(first, 0.99), "token_ms": 1e3 * statistics.median(each), "gap_99_ms": 1e3 * percentile(gaps, 0.99)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("url")
    p.add_argument("--model", required=True, help="as the server names it")
    p.add_argument("--workload", choices=["shared", "chats", "unique", "all"], default="all")
    p.add_argument("--clients", type=int, default=8, help="at once (8)")
    p.add_argument("--requests", type=int, default=48, help="of a workload (48)")
    p.add_argument("--tokens", type=int, default=64, help="of each answer (64)")
    p.add_argument("--key", default="", help="API key")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    if not re.match(r"https?://[^/:]+", o.url):
        p.error(f"{o.url}: must be the address of a server, as in http://127.0.0.1:8000")
    if min(o.clients, o.requests, o.tokens) < 1:
        p.error("--clients, --requests and --tokens must be 1 at least")
    server = Server(o.url, o.model, o.key)
    names = ["shared", "chats", "unique"] if o.workload == "all" else [o.workload]
    titles = {"workload": "workload", "requests": "requests", "prompt_tokens": "prompt", "cached": "cached %", "seconds": "s", "requests_per_s": "req/s", "tokens_per_s": "tokens/s",
              "first_ms": "first ms, 50%", "first_99_ms": "99%", "token_ms": "ms/token", "gap_99_ms": "99% gap ms"}
    if not o.json:
        print("| " + " | ".join(titles.values()) + " |\n" + "|---" * len(titles) + "|")
    for name in names:
        try:
            row = measure(server, name, o)
        except (OSError, RuntimeError, ValueError) as failed:
            sys.exit(f"{o.url}: {name}: {failed}")
        print(json.dumps(row) if o.json else "| " + " | ".join(v if isinstance(v, str) else f"{v:,.1f}" if isinstance(v, float) else f"{v:,}" for v in row.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
