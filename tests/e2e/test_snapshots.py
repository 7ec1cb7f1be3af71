"""Snapshots of recurrent states as an operator sets and sees them: where prompts part within what is cached, under a cap of bytes."""
import json
import re
import subprocess

import pytest

from conftest import SHARED, Server
from test_tiers import redis  # noqa: F401: a fixture

MODELS = ["qwen3-next", "mamba"]  # with pages of tokens, and of states alone


@pytest.fixture(params=MODELS)
def model(request, quire):
    path = SHARED / "golden/models" / request.param
    if not path.exists():
        pytest.skip(f"{path} is not at hand")
    return path


POOL = ("--kv-dtype", "f32", "--kv-pages", "600")  # a page's bytes are those of its keys and values


def start(model, *flags):
    return Server(model, "--compute", "f32", "--max-model-len", "256", "--served-model-name", "m", *POOL, *flags)


def ask(server, prompt, **fields):
    """(tokens of the prompt that were cached, the answer's ids)"""
    body = {"model": "m", "prompt": prompt, "max_tokens": 4, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **fields}
    status, _, text = server.ask("POST", "/v1/completions", body)
    assert status == 200, text
    answer = json.loads(text)
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["token_ids"]


def ids(seed, n):
    return [(seed * 7919 + i * 31 + i * i) % 251 for i in range(n)]


def parting_at(n):
    """Two prompts of 120 tokens that have the first n in common."""
    first = ids(1, 120)
    return first, first[:n] + ids(2, 120 - n)


def test_a_snapshot_every_few_tokens_serves_prompts_that_part_between_messages(model):
    first, second = parting_at(75)
    found = {}
    for every in ("0", "32"):
        server = start(model, "--state-snapshot-tokens", every)
        ask(server, first)
        found[every] = ask(server, second)
        assert server.stop() == 0
    assert found["0"][0] == 0 and found["32"][0] == 64
    assert found["0"][1] == found["32"][1]


def snapshot_bytes(quire, model):
    """What a snapshot takes, as a cap that is too small is answered."""
    done = subprocess.run([quire, "serve", str(model), "--port", "0", *POOL, "--state-snapshot-bytes", "1"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    return int(re.search(r"--state-snapshot-bytes 1: a snapshot of this model's states takes (\d+) bytes; give at least that", done.stderr)[1])


def test_a_cap_of_bytes_keeps_so_many_snapshots(quire, model):
    """A prompt leaves two, at its end and at its answer's."""
    one = snapshot_bytes(quire, model)
    for cap, cached, most in ((2 * one, 0, 2), (5 * one - 1, 119, 4)):
        server = start(model, "--state-snapshot-bytes", str(cap))
        ask(server, ids(1, 120))
        ask(server, ids(2, 120))
        assert ask(server, ids(1, 120))[0] == cached
        shown = json.loads(server.ask("GET", "/debug/pool/state", key=None)[2])["snapshots"]
        assert {"max": most, "max_bytes": most * one, "count": most, "bytes": most * one, "restored": int(cached > 0)}.items() <= shown.items()
        assert shown["taken"] - shown["dropped"] == most
        for name, value in (("s", "count"), ("s_max", "max"), ("_bytes", "bytes"), ("_bytes_max", "max_bytes"), ("s_taken_total", "taken"),
                            ("s_dropped_total", "dropped"), ("s_restored_total", "restored")):
            assert server.metric("quire_state_snapshot" + name) == shown[value]
        assert server.stop() == 0


def test_inspect_says_how_many_chats_a_cap_holds(quire, model):
    one = snapshot_bytes(quire, model)

    def inspect(*flags):
        done = subprocess.run([quire, "inspect", str(model), *POOL, *flags], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    cap = ("--state-snapshot-bytes", str(8 * one))
    assert json.loads(inspect("--json", *cap))["snapshots"] == {"bytes_each": one, "max": 8, "max_bytes": 8 * one, "chats": 4}
    assert ": 4 chats, each with its states after the last prompt and after the last answer" in inspect(*cap)
    server = start(model)
    assert json.loads(inspect("--json"))["snapshots"]["max"] == server.metric("quire_state_snapshots_max")
    assert server.stop() == 0


def test_a_model_without_states_has_no_snapshots(quire):
    assert "snapshots" not in subprocess.run([quire, "inspect", "builtin"], capture_output=True, text=True, timeout=60).stdout
    server = Server("builtin")
    assert server.metric("quire_state_snapshots_max") == 0
    assert "snapshots" not in json.loads(server.ask("GET", "/debug/pool/state", key=None)[2])
    assert server.stop() == 0


def test_explain_says_why_a_cached_prefix_was_computed(model):
    first, second = parting_at(75)

    def reused(server, prompt):
        body = {"model": "m", "prompt": prompt, "max_tokens": 4, "ignore_eos": True, "explain": True}
        return json.loads(server.ask("POST", "/v1/completions", body)[2])["explain"]["choices"][0]["reused"]

    for every, matched in (("0", 0), ("32", 64)):
        server = start(model, "--state-snapshot-tokens", every)
        assert "reason" not in reused(server, first)
        told = reused(server, second)
        assert (told["matched_tokens"], told["cached_prefix_tokens"]) == (matched, 75)
        assert told["reason"] == f"a prefix of 75 tokens is cached but has no snapshot of its recurrent state; the longest prefix that has one is of {matched} tokens"
        assert "reason" not in reused(server, second)
        assert server.stop() == 0


def test_snapshots_come_back_after_a_restart(model, tmp_path):
    prompt, found = ids(1, 120), []
    for write in ("evict", "through", "through"):
        server = start(model, "--kv-tier-file", str(tmp_path), "--kv-tier-write", write, "--kv-tier-wait", "20")
        found.append(ask(server, prompt))
        assert server.stop() == 0
    assert [cached for cached, _ in found] == [0, 112, 112]  # the last end of a page before the prompt's last token
    assert found[0][1] == found[1][1] == found[2][1]


def test_servers_share_snapshots_through_redis(model, redis):  # noqa: F811
    _, _, url = redis
    flags = ("--kv-tier-redis", url, "--kv-tier-write", "through", "--kv-tier-wait", "20")
    first, prompt = start(model, *flags), ids(1, 120)
    told = ask(first, prompt)
    assert first.stop() == 0  # what is cached is written by then
    second = start(model, *flags)
    assert ask(second, prompt) == (112, told[1])
    assert second.metric('quire_tier_errors_total\\{tier="redis"\\}') == 0
    assert second.stop() == 0
