"""Beam search through the server: with OpenAI's client, through curl, streamed, and with what else a request may ask for."""
import json
import math
import re
import subprocess
import threading
import time

import openai
import pytest

from conftest import SHARED, Server

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("beam") / "chat.jinja"
    path.write_text("{% for m in messages %}{{ m.content }} {% endfor %}")
    return str(path)


@pytest.fixture(scope="module")
def server(quire, template):
    s = Server("builtin", "--served-model-name", "tiny", "--max-num-seqs", "16", "--chat-template", template)
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def complete(server, **body):
    status, _, text = server.ask("POST", "/v1/completions", {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "return_token_ids": True, **body})
    assert status == 200, text
    return json.loads(text)


def search(client, beams=4, n=4, **extra):
    return client.completions.create(model="tiny", prompt=PROMPT, n=n, max_tokens=12, extra_body={"beam_width": beams, **extra})


def test_results_come_best_first_and_their_scores_are_the_sums_of_their_logprobs(client):
    answer = client.completions.create(model="tiny", prompt=PROMPT, n=4, max_tokens=12, logprobs=2, extra_body={"beam_width": 4})
    scores = [c.beam_score for c in answer.choices]
    assert scores == sorted(scores, reverse=True)
    assert len({c.text for c in answer.choices}) == 4
    for c in answer.choices:
        values = c.logprobs.token_logprobs
        assert c.beam_score == pytest.approx(sum(values) / len(values), abs=1e-4)
        assert all(max(top.values()) >= v for top, v in zip(c.logprobs.top_logprobs, values))
    assert answer.usage.completion_tokens == sum(len(c.logprobs.tokens) for c in answer.choices)


def test_the_likeliest_of_a_wide_search_is_at_least_as_likely_as_greedy(server):
    greedy = complete(server, temperature=0, logprobs=0, ignore_eos=True)["choices"][0]["logprobs"]["token_logprobs"]
    best = complete(server, beam_width=8, length_penalty=0, ignore_eos=True)["choices"][0]
    assert best["beam_score"] >= sum(greedy) - 1e-4
    one = complete(server, use_beam_search=True, ignore_eos=True)["choices"][0]
    assert one["token_ids"] == complete(server, temperature=0, ignore_eos=True)["choices"][0]["token_ids"]


def test_other_names_mean_the_same(server):
    ours = complete(server, beam_width=4, n=2)["choices"]
    assert ours == complete(server, num_beams=4, num_return_sequences=2)["choices"]
    assert ours == complete(server, use_beam_search=True, best_of=4, n=2, temperature=0)["choices"]
    assert ours == complete(server, use_beam_search=True, beam_width=4, n=2, seed=5)["choices"]


def test_length_penalty_and_early_stopping_choose(server):
    fields = {"beam_width": 4, "max_tokens": 40, "stop_token_ids": [complete(server, beam_width=4)["choices"][0]["token_ids"][4]]}
    lengths = {p: len(complete(server, length_penalty=p, early_stopping="never", **fields)["choices"][0]["token_ids"]) for p in (-4, 4)}
    assert lengths[-4] < lengths[4]
    scores = {stop: complete(server, length_penalty=2, early_stopping=stop, **fields)["choices"][0]["beam_score"] for stop in (True, False, "never")}
    assert scores[True] <= scores[False] <= scores["never"]


def test_groups_differ(server):
    plain = complete(server, beam_width=4, n=4, max_tokens=6)["choices"]
    groups = complete(server, beam_width=4, n=4, max_tokens=6, num_beam_groups=4, diversity_penalty=5.0)["choices"]
    assert len({c["token_ids"][0] for c in groups}) == 4
    assert len({c["token_ids"][0] for c in plain}) < 4


def chunks_of(stream):
    texts, ends, scores = {}, {}, {}
    for chunk in stream:
        for c in chunk.choices:
            piece = c.text if hasattr(c, "text") else c.delta.content
            texts[c.index] = texts.get(c.index, "") + (piece or "")
            if c.finish_reason:
                ends[c.index] = c.finish_reason
                scores[c.index] = c.beam_score
    return texts, ends, scores


def test_a_stream_sends_the_final_texts(client):
    whole = search(client, n=3)
    stream = client.completions.create(model="tiny", prompt=PROMPT, n=3, max_tokens=12, stream=True, extra_body={"beam_width": 4})
    texts, ends, scores = chunks_of(stream)
    assert [texts[i] for i in range(3)] == [c.text for c in whole.choices]
    assert [ends[i] for i in range(3)] == [c.finish_reason for c in whole.choices]
    assert [scores[i] for i in range(3)] == [c.beam_score for c in whole.choices]


def test_chat(client):
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 10, "n": 2, "extra_body": {"num_beams": 3}}
    whole = client.chat.completions.create(**ask)
    assert whole.choices[0].beam_score >= whole.choices[1].beam_score
    assert whole.choices[0].message.content != whole.choices[1].message.content
    texts, _, _ = chunks_of(client.chat.completions.create(**ask, stream=True))
    assert [texts[i] for i in range(2)] == [c.message.content for c in whole.choices]


def test_prompts_side_by_side_are_searches_of_their_own(server):
    both = complete(server, prompt=[PROMPT, "The dog ran"], beam_width=3, n=2)["choices"]
    alone = [complete(server, prompt=p, beam_width=3, n=2)["choices"] for p in (PROMPT, "The dog ran")]
    assert [c["token_ids"] for c in both] == [c["token_ids"] for choices in alone for c in choices]


def test_prompt_logprobs_and_echo_with_several_results(server):
    sampled = complete(server, n=1, temperature=0, prompt_logprobs=2, echo=True)["choices"][0]
    found = complete(server, beam_width=3, n=2, prompt_logprobs=2, echo=True)["choices"]
    for c in found:
        assert c["prompt_logprobs"] == sampled["prompt_logprobs"]
        assert c["text"].startswith(PROMPT)


def test_results_that_were_not_found_have_the_prompts_logprobs_too(server):
    for _ in range(2):  # the second time the prompt is cached
        found = complete(server, beam_width=4, n=3, max_tokens=2, allowed_token_ids=[17], prompt_logprobs=1)["choices"]
        assert sum(len(c["token_ids"]) > 0 for c in found) < 3
        assert all(len(c["prompt_logprobs"]) == len(found[0]["prompt_token_ids"]) for c in found)
        assert found[0]["prompt_logprobs"] == found[1]["prompt_logprobs"] == found[2]["prompt_logprobs"]
        for stream in (False, True):
            status, _, text = server.ask("POST", "/v1/completions", {"model": "tiny", "prompt": PROMPT, "beam_width": 4, "n": 3, "max_tokens": 2, "stream": stream,
                                                                    "allowed_token_ids": [17], "echo": True, "logprobs": 1})
            assert status == 200, text
            events = [text] if not stream else [e.removeprefix("data: ") for e in text.split("\n\n") if e and "[DONE]" not in e]
            tokens, texts = {}, {}
            for c in (c for e in events for c in json.loads(e)["choices"]):
                tokens[c["index"]] = tokens.get(c["index"], "") + "".join((c["logprobs"] or {}).get("tokens", []))
                texts[c["index"]] = texts.get(c["index"], "") + c["text"]
            assert tokens == texts and all(t.startswith(PROMPT) for t in texts.values()) and len(texts) == 3


def test_a_stop_string_ends_a_beam_in_the_search(server):
    fields = dict(beam_width=4, n=4, max_tokens=40, ignore_eos=True, length_penalty=0, early_stopping=True, logprobs=0)
    plain = complete(server, **fields)["choices"]
    words = plain[0]["text"].split()
    for stop in [words[2], words[4][1:], words[1] + " " + words[2]]:
        found = complete(server, stop=[stop], **fields)["choices"]
        assert len({c["text"] for c in found}) == 4
        assert any(c["finish_reason"] == "stop" for c in found)
        included = complete(server, stop=[stop], include_stop_str_in_output=True, **fields)["choices"]
        for cut, whole in zip(found, included):
            assert stop not in cut["text"]
            assert cut["token_ids"] == whole["token_ids"]  # up to the one that completes the stop string
            assert cut["beam_score"] == pytest.approx(sum(cut["logprobs"]["token_logprobs"]), abs=1e-4)
            assert (cut["finish_reason"], cut["stop_reason"]) in {("stop", stop), ("length", None)}
            if cut["finish_reason"] == "stop":
                assert whole["text"] == cut["text"] + stop
            else:
                assert len(cut["token_ids"]) == 40
        later = complete(server, stop=[stop], min_tokens=20, **fields)["choices"]
        assert all(len(c["token_ids"]) > 20 for c in later)


def test_bans_reach_every_beam(server):
    plain = complete(server, beam_width=3, n=3)["choices"]
    token = plain[0]["token_ids"][1]
    banned = complete(server, beam_width=3, n=3, logit_bias={str(token): -100})["choices"]
    assert all(token not in c["token_ids"] for c in banned)
    few = complete(server, beam_width=4, n=4, allowed_token_ids=[5, 9], max_tokens=3, ignore_eos=True)["choices"]
    assert len({tuple(c["token_ids"]) for c in few}) == 4
    for width in (None, 2):
        none = {"model": "tiny", "prompt": [5, 5], "allowed_token_ids": [5], "no_repeat_ngram_size": 1, "beam_width": width, "max_tokens": 4}
        status, answer = curl(server, "/v1/completions", none)
        assert status == 400 and "no token is left" in answer["error"]["message"], answer
    once = complete(server, beam_width=3, n=3, no_repeat_ngram_size=1, max_tokens=30, ignore_eos=True)["choices"]
    assert all(len(set(c["token_ids"])) == len(c["token_ids"]) for c in once)


def test_searches_and_samples_side_by_side_change_nothing(server):
    alone = complete(server, beam_width=6, n=6, max_tokens=24)["choices"]
    results = {}

    def ask(name, **body):
        results[name] = complete(server, **body)

    threads = [threading.Thread(target=ask, args=(i,), kwargs=dict(beam_width=6, n=6, max_tokens=24)) for i in range(3)]
    threads += [threading.Thread(target=ask, args=(f"s{i}",), kwargs=dict(seed=i, n=3, max_tokens=24)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(results[i]["choices"] == alone for i in range(3))


def test_a_client_that_leaves_ends_its_search(server):
    body = json.dumps({"model": "tiny", "prompt": PROMPT, "beam_width": 8, "max_tokens": 1500, "ignore_eos": True, "stream": True})
    done = subprocess.run(["curl", "-s", "-m", "0.3", "-H", "content-type: application/json", "-d", body, server.url + "/v1/completions"], capture_output=True)
    assert done.returncode == 28  # timed out, as told
    running = 1
    for _ in range(1200):
        running = float(re.search(r"^vllm:num_requests_running\S* (\S+)$", server.ask("GET", "/metrics")[2], re.M)[1])
        if running == 0:
            break
        time.sleep(0.05)
    assert running == 0
    assert complete(server, beam_width=2)["choices"][0]["token_ids"]


def curl(server, path, body):
    done = subprocess.run(["curl", "-s", "-w", "\n%{http_code}", "-H", "content-type: application/json", "-d", json.dumps(body), server.url + path],
                          capture_output=True, text=True, check=True)
    text, status = done.stdout.rsplit("\n", 1)
    return int(status), json.loads(text)


@pytest.mark.parametrize("fields, param", [
    ({"beam_width": 0}, "beam_width"), ({"beam_width": -1}, "beam_width"), ({"beam_width": 129}, "beam_width"), ({"beam_width": 1000000000000}, "beam_width"),
    ({"beam_width": 17}, "beam_width"), ({"beam_width": "4"}, "body.beam_width"), ({"num_beams": 0}, "num_beams"),
    ({"beam_width": 4, "n": 5}, "n"), ({"use_beam_search": True, "n": 200}, "n"), ({"use_beam_search": "yes"}, "body.use_beam_search"),
    ({"beam_width": 4, "temperature": 0.5}, "temperature"), ({"beam_width": 4, "top_p": 0.5}, "top_p"), ({"beam_width": 4, "top_k": 3}, "top_k"),
    ({"beam_width": 4, "mirostat": 2}, "mirostat"), ({"beam_width": 4, "num_beam_groups": 3}, "num_beam_groups"),
    ({"beam_width": 4, "diversity_penalty": 1}, "diversity_penalty"), ({"beam_width": 4, "length_penalty": 1e9}, "length_penalty"),
    ({"beam_width": 4, "early_stopping": "sometimes"}, "body.early_stopping"), ({"beam_width": 4, "early_stopping": 3}, "body.early_stopping"),
], ids=json.dumps)
@pytest.mark.parametrize("chat", [False, True], ids=["completions", "chat"])
def test_what_cannot_be_is_refused_with_400(server, fields, param, chat):
    about = {"messages": [{"role": "user", "content": "Hi"}]} if chat else {"prompt": PROMPT}
    status, answer = curl(server, "/v1/chat/completions" if chat else "/v1/completions", {"model": "tiny", "max_tokens": 4, **about, **fields})
    assert status == 400, answer
    assert answer["error"]["param"] == param
    assert answer["error"]["type"] == "invalid_request_error"


def test_beams_that_may_outgrow_the_pages_are_refused_and_few_enough_are_not(quire, template):
    s = Server("builtin", "--served-model-name", "tiny", "--num-gpu-blocks-override", "12", "--block-size", "16", "--chat-template", template)
    try:
        status, answer = curl(s, "/v1/completions", {"model": "tiny", "prompt": PROMPT, "beam_width": 4, "max_tokens": 60})
        assert status == 400 and "KV pages" in answer["error"]["message"], answer
        status, answer = curl(s, "/v1/completions", {"model": "tiny", "prompt": PROMPT, "beam_width": 4, "max_tokens": 20})
        assert status == 200, answer
        chat = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "beam_width": 4}
        status, answer = curl(s, "/v1/chat/completions", chat)  # as many tokens as fit
        assert status == 200, answer
        assert math.isfinite(answer["choices"][0]["beam_score"])
    finally:
        assert s.stop() == 0


def test_beams_with_states_are_admitted_where_each_fits_without_the_others(quire):
    """One that was preempted computes its prompt again: a state cannot go back to what the beams have in common."""
    model = SHARED / "golden/models/qwen3-next"
    if not model.exists():
        pytest.skip(f"{model} is not at hand")
    s = Server(model, "--served-model-name", "tiny", "--kv-pages", "79", "--page-size", "16", "--max-model-len", "1024")
    try:
        for width, expected in ((2, 200), (3, 400)):
            status, answer = curl(s, "/v1/completions", {"model": "tiny", "prompt": [1, 2, 3, 4] * 107, "beam_width": width, "max_tokens": 40})
            assert status == expected and (status == 200 or "KV pages" in answer["error"]["message"]), answer
    finally:
        assert s.stop() == 0
