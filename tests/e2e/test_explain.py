"""The field explain: an answer says why it waited, what it reused and where its time went."""
import json
import re
import threading
import time

import pytest
from conftest import Server

STORY = "The prince had been walking up and down the drawing room for a long time. " * 12
CAUSES = {"turn", "pages", "slot", "budget", "prefix", "tier"}


@pytest.fixture(scope="module")
def server(quire, tmp_path_factory):
    template = tmp_path_factory.mktemp("explain") / "chat.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    s = Server("builtin", "--max-num-seqs", "1", "--chat-template", str(template))
    yield s
    assert s.stop() == 0


def ask(server, path="/v1/completions", **body):
    status, _, text = server.ask("POST", path, {"model": "builtin", "max_tokens": 12, "temperature": 0, "ignore_eos": True, **body})
    assert status == 200, text
    return text


def only(answer):
    choices = answer["explain"]["choices"]
    assert len(choices) == 1 and choices[0]["index"] == 0
    told = choices[0]
    assert {w["cause"] for w in told["waits"]} <= CAUSES
    assert sum(w["us"] for w in told["waits"]) == told["stages_us"]["queue"]
    return told


def test_nobody_is_told_who_does_not_ask(server):
    assert "explain" not in json.loads(ask(server, prompt="Once"))
    assert "explain" not in json.loads(ask(server, prompt="Once", explain=False))


def test_reuse_chunks_and_stages(server):
    first = json.loads(ask(server, prompt=STORY, explain=True))
    again = json.loads(ask(server, prompt=STORY, explain=True))
    n = first["usage"]["prompt_tokens"]
    assert only(again)["reused"]["matched_tokens"] == n - 1 == again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert only(again)["reused"]["copied_page_tokens"] == (n - 1) % 16
    assert only(first)["reused"]["matched_tokens"] == n - sum(c["tokens"] for c in only(first)["chunks"]) < 3  # BOS
    assert only(first)["n_decode_steps"] == 11
    stages = only(first)["stages_us"]
    assert all(stages[k] > 0 for k in ("tokenise", "queue", "prefill", "decode", "detokenise"))
    assert only(first)["preemptions"] == []


def test_the_last_chunk_of_a_stream_carries_it(server):
    for path, prompt in (("/v1/completions", {"prompt": "Once"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})):
        for more in ({}, {"stream_options": {"include_usage": True}}, {"stop": ["e"]}):
            text = ask(server, path, stream=True, explain=True, **prompt, **more)
            chunks = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
            with_it = [c for c in chunks if "explain" in c]
            assert len(with_it) == 1
            assert with_it[0]["choices"][0]["finish_reason"] in ("length", "stop")
            assert only(with_it[0])["stages_us"]["decode"] > 0


def test_every_choice_is_told(server):
    answer = json.loads(ask(server, prompt=STORY + "Then", n=3, explain=True))
    told = answer["explain"]["choices"]
    assert [t["index"] for t in told] == [0, 1, 2]


def test_a_full_slot_table_is_named(server):
    for _ in range(20):  # until one comes while the other runs
        blocker = threading.Thread(target=ask, args=(server,), kwargs={"prompt": "Long", "max_tokens": 1500})
        blocker.start()
        while blocker.is_alive() and not re.search(r"^vllm:num_requests_running\S* 1", server.ask("GET", "/metrics")[2], re.M):
            time.sleep(0.001)
        told = only(json.loads(ask(server, prompt="Short", explain=True)))
        blocker.join()
        slot = [w for w in told["waits"] if w["cause"] == "slot"]
        if slot:
            break
    assert len(slot) == 1 and slot[0]["us"] > 0 and slot[0]["times"] == 1


def test_the_place_in_the_queue_is_told(server):
    for _ in range(20):  # until all come while another runs
        blocker = threading.Thread(target=ask, args=(server,), kwargs={"prompt": "Long", "max_tokens": 1500})
        blocker.start()
        while blocker.is_alive() and not re.search(r"^vllm:num_requests_running\S* 1", server.ask("GET", "/metrics")[2], re.M):
            time.sleep(0.001)
        answers = server.post_together("/v1/completions", [{"prompt": f"Short {i}", "max_tokens": 2, "explain": True} for i in range(4)])
        blocker.join()
        places = [only(json.loads(text))["place"] for status, text in answers]
        assert {p["order"] for p in places} == {"fcfs"}
        if sorted(p["ahead"] for p in places) == [0, 1, 2, 3]:
            break
    assert sorted(p["ahead"] for p in places) == [0, 1, 2, 3]


def test_it_must_be_a_boolean(server):
    status, _, text = server.ask("POST", "/v1/completions", {"model": "builtin", "prompt": "x", "explain": "why"})
    assert status == 400 and "explain" in json.loads(text)["error"]["message"]


def test_a_rule_says_what_it_cost(server):
    schema = {"type": "object", "properties": {"sentiment": {"enum": ["good", "bad"]}, "is_spam": {"type": "boolean"}}, "required": ["sentiment", "is_spam"], "additionalProperties": False}
    fields = {"prompt": "Once", "explain": True, "ignore_eos": False, "max_tokens": 60}
    rule = only(json.loads(ask(server, json_schema=schema, **fields)))["rule"]
    assert rule["compile_us"] > 0 and rule["mask_us"] > 0 and rule["forced_tokens"] > 5 and rule["guessed_tokens"] >= 0
    assert {(k["path"], k["keyword"], k["status"]) for k in rule["keywords"]} >= {("", "required", "enforced"), ("/properties/sentiment", "enum", "enforced")}
    assert only(json.loads(ask(server, regex="a+b", **fields)))["rule"]["keywords"] == []
    assert "rule" not in only(json.loads(ask(server, **fields)))
    streamed = [json.loads(line[6:]) for line in ask(server, json_schema=schema, stream=True, **fields).splitlines() if line.startswith("data: {")]
    assert any(c["explain"]["choices"][0]["rule"]["keywords"] == rule["keywords"] for c in streamed if "explain" in c)
