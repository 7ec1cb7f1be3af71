#!/usr/bin/env python3
"""Counts the prompt tokens that a server computes in conversations on a model with recurrent states: Quire, and llama-server beside it, turn by turn the
same ids (docs/kv.md).

    state_reuse.py GOLDEN/MODEL [--quire build/quire] [--llama-server PROGRAM]

MODEL is a golden model of 256 tokens, as a directory with model.gguf: a token is a byte, 3 and 4 begin and end a message (tests/e2e/byte_model.py).
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/e2e"))
N_ANSWER = 24
LETTERS = list(range(97, 123))
CONVERSATIONS = {
    "20 turns": lambda ask: turns(ask, "A plain chat. " * 20, 20),
    "the last message edited twice": lambda ask: edited(ask),
    "reasoning left out of earlier answers": lambda ask: turns(ask, "One that reasons. " * 20, 6, keep=10),
    "two clients in turn, 6 turns each": lambda ask: alternating(ask),
    "8 users of one system prompt": lambda ask: [ask([("system", "Be brief, and say only what is known. " * 264), ("user", f"I am user {i}. Who are you?")])
                                                for i in range(8)],
}


def question(turn):
    return "user", f"Question {turn}: and then, what did the prince say to her?"


def turns(ask, system, n, keep=0):
    messages = [("system", system)]
    for turn in range(n):
        messages.append(question(turn))
        messages.append(("assistant", ask(messages)[keep:]))
    return messages


def edited(ask):
    messages = turns(ask, "One that edits. " * 20, 3)
    for text in "Which of them came first?", "Which of them came last?", "Who of them came first?":
        ask([*messages, ("user", text)])


def alternating(ask):
    both = [[("system", f"Client {i}. " * 40)] for i in range(2)]
    for turn in range(6):
        for messages in both:
            messages.append(question(turn))
            messages.append(("assistant", ask(messages)))


def ids_of(messages):
    ids = []
    for role, text in messages:
        ids += [3, *f"{role}\n{text}".encode(), 4, 10]
    return [*ids, 3, *b"assistant\n"]


class Counter:
    """Counts for one conversation. Answers are N_ANSWER letters, so that they come back as the same ids; which ones does not matter."""

    def __init__(self, url):
        self.url, self.n_prompt, self.n_computed = url, 0, 0

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        return json.loads(urllib.request.urlopen(request, timeout=300).read())

    def ask(self, messages):
        answer, computed = self.count(messages)
        assert len(answer) == N_ANSWER
        self.n_prompt += len(ids_of(messages))
        self.n_computed += computed
        return answer


class Quire(Counter):
    def count(self, messages):
        answer = self.post("/v1/chat/completions", {"model": "m", "messages": [{"role": r, "content": t} for r, t in messages], "max_tokens": N_ANSWER,
                                                    "ignore_eos": True, "allowed_token_ids": LETTERS, "temperature": 0})
        usage = answer["usage"]
        assert usage["prompt_tokens"] == len(ids_of(messages))
        return answer["choices"][0]["message"]["content"], usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]


class LlamaServer(Counter):
    def count(self, messages):
        answer = self.post("/completion", {"prompt": ids_of(messages), "n_predict": N_ANSWER, "cache_prompt": True, "temperature": 0, "ignore_eos": True,
                                           "logit_bias": [[token, 1000.0] for token in LETTERS], "return_tokens": True})
        return bytes(answer["tokens"]).decode(), answer["timings"]["prompt_n"]


def with_vocabulary(path, out):
    """A copy of a GGUF file that has the bytes as its tokens: llama-server fails without."""
    import byte_model
    import gguf_edit
    g = gguf_edit.Gguf(path)
    pieces = [byte_model.CONTROL.get(i, piece).encode() for i, piece in enumerate(byte_model.byte_pieces())]
    types = [struct.pack("<i", gguf_edit.CONTROL if i in byte_model.CONTROL else 1) for i in range(len(pieces))]
    g.set("tokenizer.ggml.model", gguf_edit.STRING, "gpt2").set("tokenizer.ggml.pre", gguf_edit.STRING, "gpt-2")
    g.keys[gguf_edit.TOKENS] = (gguf_edit.ARRAY, (gguf_edit.STRING, pieces))
    g.keys[gguf_edit.TYPES] = (gguf_edit.ARRAY, (gguf_edit.I32, types))
    g.keys["tokenizer.ggml.merges"] = (gguf_edit.ARRAY, (gguf_edit.STRING, [b"\xc4\xa0 \xc4\xa0"]))
    g.set("tokenizer.ggml.eos_token_id", gguf_edit.U32, 4).set("tokenizer.ggml.bos_token_id", gguf_edit.U32, 3)
    g.set("tokenizer.ggml.add_bos_token", gguf_edit.BOOL, False)
    name = g.keys["general.architecture"][1].decode()
    g.set(f"{name}.context_length", gguf_edit.U32, 32768)
    g.write(out)
    return out


def run(kind, command, port):
    log = tempfile.NamedTemporaryFile(prefix="state-reuse-", suffix=".log", delete=False)
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(url + "/health", timeout=1).read()
                break
            except OSError:
                time.sleep(0.1)
        counts = []
        for conversation in CONVERSATIONS.values():
            counter = kind(url)
            conversation(counter.ask)
            counts.append((counter.n_prompt, counter.n_computed))
        return counts
    finally:
        process.terminate()
        process.wait(30)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("--quire", default="build/quire")
    p.add_argument("--llama-server")
    o = p.parse_args()
    os.environ["QUIRE_SHARED"] = str(o.model.resolve().parents[2])
    import byte_model
    chat = byte_model.write(pathlib.Path(tempfile.mkdtemp()) / o.model.name, o.model.name)
    rows = [run(Quire, [o.quire, "serve", str(chat), "--port", "8471", "--served-model-name", "m", "--max-model-len", "16384", "--kv-pages", "4096"], 8471)]
    if o.llama_server:
        made = with_vocabulary(o.model / "model.gguf", pathlib.Path(tempfile.mkdtemp()) / "model.gguf")
        rows.append(run(LlamaServer, [o.llama_server, "-m", str(made), "--port", "8472", "-c", "65536", "-np", "4", "-kvu"], 8472))
    print("| conversation | prompt tokens | Quire computes |" + (" llama-server computes |" if o.llama_server else ""))
    print("|---|--:|--:|" + ("--:|" if o.llama_server else ""))
    for name, *counts in zip(CONVERSATIONS, *rows):
        print(f"| {name} | {counts[0][0]} |" + "".join(f" {c[1]} |" for c in counts))


if __name__ == "__main__":
    main()
