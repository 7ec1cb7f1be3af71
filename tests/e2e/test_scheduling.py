"""Scheduling as a client sees it: deadlines, priorities, flags that are refused."""
import json
import subprocess
import threading
import time

import pytest

from conftest import QUIRE, Server


@pytest.fixture
def start(quire):
    """Starts servers with flags; each must end well."""
    servers = []

    def one(*flags):
        servers.append(Server("builtin", *flags))
        return servers[-1]
    yield one
    for s in servers:
        assert s.stop() == 0


def ask(server, **fields):
    body = {"model": "builtin", "prompt": "The prince", "temperature": 0, "ignore_eos": True, **fields}
    status, headers, text = server.ask("POST", "/v1/completions", body)
    return status, headers, json.loads(text)


def text_of(server, **fields):
    status, _, answer = ask(server, **fields)
    assert status == 200, answer
    return answer["choices"][0]["text"]


def test_a_deadline_that_cannot_be_met_is_answered_429_and_when_to_come_back(start):
    server = start("--prefix-cache", "none")
    for i in range(3):
        text_of(server, prompt=[1 + i] * 300, max_tokens=8)
    assert ask(server, max_tokens=2, ttft_deadline_ms=60000)[2]["usage"]["completion_tokens"] == 2
    load = [threading.Thread(target=text_of, args=(server,), kwargs=dict(prompt=[9 + i] * 2000, max_tokens=4)) for i in range(12)]
    for thread in load:
        thread.start()
    for stream in (False, True):
        status, headers, answer = ask(server, max_tokens=2, ttft_deadline_ms=0.01, stream=stream)
        assert status == 429 and int(headers["retry-after"]) >= 1
        assert answer["error"]["type"] == "rate_limit_error" and "ttft_deadline_ms" in answer["error"]["message"]
    for thread in load:
        thread.join()
    assert server.metric("quire_deadline_refusals_total") == 2
    assert ask(server, max_tokens=2, n=3, ttft_deadline_ms=60000)[2]["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize("value", [0, -1, "soon", 1e12])
def test_a_deadline_is_a_time(server, value):
    status, _, answer = ask(server, max_tokens=2, ttft_deadline_ms=value)
    assert status == 400 and answer["error"]["param"].endswith("ttft_deadline_ms")


@pytest.mark.parametrize("keys,flags,said", [
    ("", [], "schedule: fcfs, because there are fewer than two keys"),
    ("a:ka\n", ["--operator-key", "ko"], "schedule: fcfs, because there are fewer than two keys"),
    ("a:ka\nb:kb\n", [], "schedule: fair, because there are two keys or more"),
    ("a:ka\n", ["--api-key", "kb"], "schedule: fair, because there are two keys or more"),
    ("a:ka\nb:kb\n", ["--schedule", "fcfs"], "schedule: fcfs, as given by --schedule"),
    ("", ["--schedule", "fair"], "schedule: fair, as given by --schedule"),
])
def test_two_keys_make_the_schedule_fair_unless_a_flag_says_which(start, tmp_path, keys, flags, said):
    if keys:
        (tmp_path / "keys").write_text(keys)
        flags = [*flags, "--api-key-file", str(tmp_path / "keys")]
    server = start(*flags)
    assert [line for line in server.said if "schedule: " in line and said in line], server.said


@pytest.mark.parametrize("policy", ["fcfs", "priority", "prefix", "fair"])
def test_no_policy_changes_what_is_said(start, policy):
    server = start("--schedule", policy, "--max-num-seqs", "2", "--step-target-ms", "1")
    alone = [text_of(server, prompt=[5 + i] * 40, max_tokens=12) for i in range(6)]
    texts = [None] * 6

    def one(i):
        texts[i] = text_of(server, prompt=[5 + i] * 40, max_tokens=12, priority=-i)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == alone


@pytest.mark.parametrize("flags,words", [
    (["--schedule", "lottery"], ["--schedule lottery", "fcfs", "fair"]),
    (["--schedule-lambda", "0"], ["--schedule-lambda"]),
    (["--step-target-ms", "-1"], ["--step-target-ms"]),
])
def test_flags_that_make_no_sense_are_refused(quire, flags, words):
    done = subprocess.run([QUIRE, "serve", "builtin", "--port", "0", *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr
