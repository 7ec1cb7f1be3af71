#!/usr/bin/env python3
"""What a chat's `prediction` saves: each answer is asked for without one, then with itself, with itself after a word in twenty was
replaced, and with another text. One request at a time; answers must be equal. tokens/s and tokens/step are of what comes after the
first token.

    tools/prediction_bench.py MODEL [flags of quire serve]"""
import http.client
import json
import os
import re
import subprocess
import sys
import time

QUIRE = os.environ.get("QUIRE_BIN", "build/quire")
QUESTIONS = ["Tell me about the sea.", "Who is the king?", "Write a letter to a friend.", "What did the old man say?", "Sing of the war.", "How does a storm begin?"]
MAX_TOKENS = 256
OTHER = "There is nothing in these words that the model would say, whatever it was asked. " * 20


def start(model, flags):
    """The server, and the address that it prints."""
    server = subprocess.Popen([QUIRE, "serve", model, "--port", "0", *flags], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        found = re.search(r"listening on http://([^\s:]+:\d+)", line)
        if found:
            return server, found[1]
    sys.exit("prediction_bench: quire serve did not start")


def steps(address):
    connection = http.client.HTTPConnection(address)
    connection.request("GET", "/metrics")
    return int(re.search(r"^quire_steps_total(?:{.*?})? (\d+)$", connection.getresponse().read().decode(), re.M)[1])


def answer(address, question, prediction):
    """The text, its usage, and the seconds and steps after its first token."""
    body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": MAX_TOKENS, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}
    if prediction is not None:
        body["prediction"] = {"type": "content", "content": prediction}
    before, text, usage, first = steps(address), "", None, 0.0
    connection = http.client.HTTPConnection(address)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        usage = chunk.get("usage") or usage
        content = chunk["choices"][0]["delta"].get("content") if chunk["choices"] else None
        if content:
            text += content
            first = first or time.monotonic()
            last = time.monotonic()
    return text, usage, last - first, steps(address) - before - 1


def edited(text):
    words = text.split(" ")
    for i in range(10, len(words), 20):
        words[i] = "something"
    return " ".join(words)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    server, address = start(sys.argv[1], sys.argv[2:])
    sums = {name: [0.0, 0, 0, 0, 0] for name in ("none", "the answer", "edited", "another text")}
    try:
        for question in QUESTIONS:
            text = answer(address, question, None)[0]  # its prompt is in the cache from now on
            for name, prediction in zip(sums, (None, text, edited(text), OTHER)):
                got, usage, seconds, n_steps = answer(address, question, prediction)
                if got != text:
                    sys.exit(f"prediction_bench: {question} another answer with {name} as its prediction")
                details = usage["completion_tokens_details"] if prediction is not None else {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
                rejected = details["rejected_prediction_tokens"]
                for i, n in enumerate((seconds, usage["completion_tokens"] - rejected - 1, n_steps, details["accepted_prediction_tokens"], rejected)):
                    sums[name][i] += n
    finally:
        server.terminate()
        server.wait()
    print(f"{'prediction':14} {'tokens/s':>9} {'of none':>8} {'tokens/step':>12} {'accepted':>9} {'rejected':>9}")
    plain = sums["none"][1] / sums["none"][0]
    for name, (seconds, n, n_steps, accepted, rejected) in sums.items():
        print(f"{name:14} {n / seconds:9.0f} {n / seconds / plain:8.2f} {n / n_steps:12.2f} {accepted:9} {rejected:9}")


if __name__ == "__main__":
    main()
