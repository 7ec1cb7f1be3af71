"""Prompts that begin alike share pages: seen in the counters, never in the answers, and never across tenants."""
import json
import re
import time

import pytest
from conftest import KEY, Server

OTHER = "k-other"
STORY = ("The prince had been walking up and down the drawing room for a long time. "
         "He stopped before the window and looked at the snow, and the old count came to him. ") * 8


def hits(server):
    text = server.ask("GET", "/metrics")[2]
    return float(re.search(r"^vllm:prefix_cache_hits_total\S* (\S+)$", text, re.M)[1])


def complete(server, prompt, key=KEY, **fields):
    body = {"model": "builtin", "prompt": prompt, "max_tokens": 20, "temperature": 0.8, "seed": 5, **fields}
    status, _, text = server.ask("POST", "/v1/completions", body, key=key)
    assert status == 200, text
    answer = json.loads(text)
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens"]


@pytest.fixture(scope="module")
def cached(quire):
    server = Server("builtin", "--api-key", KEY, "--api-key", OTHER)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def uncached(quire):
    server = Server("builtin", "--api-key", KEY, "--prefix-cache", "none")
    yield server
    assert server.stop() == 0


def test_a_prompt_seen_before_is_reused_but_for_its_last_token(cached):
    text, n = complete(cached, STORY)
    before = hits(cached)
    again, _ = complete(cached, STORY)
    assert again == text
    assert hits(cached) - before == n - 1


def test_reuse_is_by_token_not_by_page_and_changes_no_answer(cached, uncached):
    for end in range(0, 60, 7):
        prompt = STORY[:700 + end] + f" And then {end} of them came."
        assert complete(cached, prompt) == complete(uncached, prompt)
    assert hits(cached) > 0
    assert hits(uncached) == 0


def test_a_second_turn_reuses_the_first_turns_answer(cached):
    first, n = complete(cached, STORY + "At last he said", ignore_eos=True)
    before = hits(cached)
    complete(cached, STORY + "At last he said" + first + " and went on")
    assert hits(cached) - before > n  # the prompt and most of what was generated behind it


def test_tenants_share_nothing(cached):
    prompt = "A secret of one tenant. " + STORY
    complete(cached, prompt)
    before = hits(cached)
    complete(cached, prompt, key=OTHER)
    assert hits(cached) == before
    complete(cached, prompt, key=OTHER)
    assert hits(cached) > before


def test_pages_come_back_to_the_cache_and_none_stay_held(cached):
    complete(cached, STORY)
    deadline = time.monotonic() + 10
    while cached.metric("quire_pages_held") > 0 and time.monotonic() < deadline:
        time.sleep(0.01)  # the counters are published after the step that sent the last token
    assert cached.metric("quire_pages_held") == 0
    assert cached.metric("quire_pages_cached") > 0
