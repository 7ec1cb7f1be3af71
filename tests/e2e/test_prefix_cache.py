"""Prompts that begin alike share pages: seen in the counters, never in the answers, and never across tenants."""
import json
import re
import subprocess
import time

import openai
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


def client_of(server, key=KEY):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)


def test_the_client_reads_how_many_tokens_were_cached(cached, uncached):
    """37 common tokens at page 16: two whole pages and 5 tokens of a third."""
    client, cold = client_of(cached), client_of(uncached)
    first = [11 + i for i in range(60)]
    second = first[:37] + [900 + i for i in range(23)]
    fields = {"model": "builtin", "max_tokens": 8, "temperature": 0}
    answers = [client.completions.create(prompt=p, **fields) for p in (first, second, second)]
    assert [a.usage.prompt_tokens_details.cached_tokens for a in answers] == [0, 37, 59]
    assert answers[1].choices[0].text == answers[2].choices[0].text == cold.completions.create(prompt=second, **fields).choices[0].text
    chunks = list(client.completions.create(prompt=second, stream=True, stream_options={"include_usage": True}, **fields))
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 59
    both = client.completions.create(prompt=[second, first], **fields)
    assert both.usage.prompt_tokens == 120 and both.usage.prompt_tokens_details.cached_tokens == 118
    assert cold.completions.create(prompt=second, **fields).usage.prompt_tokens_details.cached_tokens == 0


def test_the_client_reads_how_many_tokens_of_a_chat_were_cached(golden_server):
    client = client_of(golden_server)
    messages = [{"role": "system", "content": "You count what you remember of a chat."}, {"role": "user", "content": "One."}]
    fields = {"model": "tiny", "max_tokens": 4, "temperature": 0}
    first = client.chat.completions.create(messages=messages, **fields)
    again = client.chat.completions.create(messages=messages, **fields)
    assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1
    assert again.choices[0].message.content == first.choices[0].message.content
    chunks = list(client.chat.completions.create(messages=messages, stream=True, stream_options={"include_usage": True}, **fields))
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1


def test_tenants_share_nothing(cached):
    prompt = "A secret of one tenant. " + STORY
    complete(cached, prompt)
    before = hits(cached)
    complete(cached, prompt, key=OTHER)
    assert hits(cached) == before
    complete(cached, prompt, key=OTHER)
    assert hits(cached) > before


def counters(server):
    """Prompt tokens looked up, of these found, and rows computed, once nothing runs."""
    text, deadline = "", time.monotonic() + 60
    while time.monotonic() < deadline:
        text = server.ask("GET", "/metrics")[2]
        if re.search(r"^vllm:num_requests_running\S* 0(\.0)?$", text, re.M):
            break
        time.sleep(0.01)
    return [float(re.search(rf"^{name}\S* (\S+)$", text, re.M)[1])
            for name in ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "quire_step_rows_total")]


def test_a_cached_token_is_never_computed_again_and_every_hit_is_counted(cached):
    turns = [("Of counting. " + STORY, KEY), ("Of counting. " + STORY, KEY), ("Of counting. " + STORY[:500] + " Here it parts.", KEY),
             ("Of counting. " + STORY, OTHER), ("Of counting. ", KEY), ("Of counting. " + STORY + " And then?", OTHER)]
    found = []
    for prompt, key in turns:
        before = counters(cached)
        body = {"model": "builtin", "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        usage = json.loads(cached.ask("POST", "/v1/completions", body, key=key)[2])["usage"]
        queries, hit, rows = (after - b for after, b in zip(counters(cached), before))
        assert queries == usage["prompt_tokens"]
        assert hit == usage["prompt_tokens_details"]["cached_tokens"]
        assert rows == usage["prompt_tokens"] - hit + usage["completion_tokens"] - 1
        found.append((usage["prompt_tokens"], hit))
    assert found[0][1] < 16 and found[1][1] == found[0][0] - 1 and found[2][1] > 100
    assert found[3][1] <= 1  # another tenant computes all but the first token of all texts, which its own earlier prompts had too
    assert found[5][1] >= found[3][0] - 1


def test_pages_come_back_to_the_cache_and_none_stay_held(cached):
    complete(cached, STORY)
    deadline = time.monotonic() + 60
    while cached.metric("quire_pages_held") > 0 and time.monotonic() < deadline:
        time.sleep(0.01)  # the counters are published after the step that sent the last token
    assert cached.metric("quire_pages_held") == 0
    assert cached.metric("quire_pages_cached") > 0


# ---- what a request may say ----

def cached_tokens(server, prompt, key=KEY, **fields):
    body = {"model": "builtin", "prompt": prompt, "max_tokens": 1, **fields}
    status, _, text = server.ask("POST", "/v1/completions", body, key=key)
    assert status == 200, text
    return json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_only_the_same_salt_shares(cached):
    prompt = [5 + i for i in range(50)]
    assert cached_tokens(cached, prompt, cache_salt="one") == 0
    assert cached_tokens(cached, prompt, cache_salt="two") == 0
    assert cached_tokens(cached, prompt) == 0
    assert cached_tokens(cached, prompt, key=OTHER, cache_salt="one") == 0  # a salt narrows a tenant's space, and joins nobody's
    for salt in ({"cache_salt": "one"}, {"cache_salt": "two"}, {}, {"cache_salt": None}):
        assert cached_tokens(cached, prompt, **salt) == 49


@pytest.mark.parametrize("field, value", [("cache_salt", ""), ("cache_salt", 7), ("cache_salt", "x" * 5000), ("cache_priority", 101), ("cache_priority", -1),
                                          ("cache_priority", 1.5), ("cache_ttl", 0), ("cache_ttl", -1), ("cache_ttl", 1e12), ("cache_ttl", "1")])
def test_what_is_out_of_range_is_refused(cached, field, value):
    status, _, text = cached.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, field: value})
    error = json.loads(text)["error"]
    assert status == 400 and field in error["param"], text


def test_a_dear_prompt_outlives_newer_ones(quire):
    server = Server("builtin", "--api-key", KEY, "--kv-pages", "32", "--max-model-len", "256")
    prompts = [[20 * i + 7 + k for k in range(200)] for i in range(4)]
    assert cached_tokens(server, prompts[0], cache_priority=90) == 0
    for p in prompts[1:]:
        assert cached_tokens(server, p) == 0
    assert cached_tokens(server, prompts[0]) == 199
    assert cached_tokens(server, prompts[1]) < 199
    assert cached_tokens(server, prompts[2], cache_priority=100, cache_ttl=0.001) < 199
    time.sleep(0.01)
    cached_tokens(server, prompts[3])
    assert cached_tokens(server, prompts[2]) < 199
    assert server.stop() == 0


# ---- what the operator may say ----

def test_a_public_prefix_is_shared_by_all_tenants(quire, tmp_path):
    text = tmp_path / "system.txt"
    text.write_text(STORY)
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps([9 + i for i in range(64)]))
    server = Server("builtin", "--api-key", KEY, "--api-key", OTHER, "--public-prefix", str(text), "--public-prefix", str(ids))
    n = json.loads(server.ask("POST", "/v1/completions", {"prompt": STORY, "max_tokens": 1})[2])["usage"]["prompt_tokens"]
    public = n - n % 16
    assert cached_tokens(server, STORY + "And one of them said", key=OTHER) in (public, public - 16)  # the last token may join what follows
    assert cached_tokens(server, [9 + i for i in range(80)]) == 0
    assert cached_tokens(server, [9 + i for i in range(80)], key=OTHER) == 64
    assert cached_tokens(server, [9 + i for i in range(80)], key=OTHER) == 79
    assert server.stop() == 0


def test_a_public_prefix_that_cannot_be_shared_is_refused(quire, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("Hello")
    for path, said in ((short, "must have at least 16"), (tmp_path / "none.txt", "No such file")):
        r = subprocess.run([quire, "serve", "builtin", "--port", "0", "--public-prefix", str(path)], capture_output=True, text=True, timeout=60)
        assert r.returncode != 0 and said in r.stderr, r.stderr


@pytest.mark.parametrize("flags, expected", [(["--prefix-cache", "page"], [0, 32, 48]), (["--enable-prefix-caching"], [0, 37, 59]),
                                             (["--no-enable-prefix-caching"], [0, 0, 0]), (["--eviction-policy", "gdsf"], [0, 37, 59])])
def test_granularity_is_the_operators_choice(quire, flags, expected):
    server = Server("builtin", "--api-key", KEY, *flags)
    first = [11 + i for i in range(60)]
    second = first[:37] + [900 + i for i in range(23)]
    assert [cached_tokens(server, p) for p in (first, second, second)] == expected
    assert server.stop() == 0


def test_an_unknown_eviction_policy_is_refused(quire):
    r = subprocess.run([quire, "serve", "builtin", "--port", "0", "--eviction-policy", "best"], capture_output=True, text=True, timeout=60)
    assert r.returncode != 0 and "must be one of lru, lfu, gdsf" in r.stderr
