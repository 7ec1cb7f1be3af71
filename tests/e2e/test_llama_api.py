"""llama.cpp's own API: completions whole and streamed, what they tell, infill, and what clients ask about the server."""
import concurrent.futures
import http.client
import json
import math

import pytest

from conftest import KEY, Server
from test_fill import ids_of, made

PROMPT = "The prince looked at her and"
GREEDY = {"prompt": PROMPT, "temperature": 0, "n_predict": 12}


@pytest.fixture(scope="module")
def server(quire):
    s = Server("builtin", "--api-key", KEY, "--served-model-name", "story")
    yield s
    assert s.stop() == 0


def complete(s, path="/completion", **fields):
    status, _, text = s.ask("POST", path, {**GREEDY, **fields})
    assert status == 200, text
    return json.loads(text)


def streamed(s, path="/completion", **fields):
    """The events of a stream; all but the last are pieces."""
    status, headers, text = s.ask("POST", path, {**GREEDY, "stream": True, **fields})
    assert status == 200 and headers["content-type"].startswith("text/event-stream"), text
    blocks = text.split("\n\n")
    assert blocks.pop() == "" and all(b.startswith("data: ") for b in blocks)
    return [json.loads(b[6:]) for b in blocks]


def of_openai(s, **fields):
    status, _, text = s.ask("POST", "/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 12, "return_token_ids": True, **fields})
    assert status == 200, text
    return json.loads(text)


@pytest.mark.parametrize("path", ["/completion", "/completions"])
def test_a_greedy_completion_is_that_of_openais_path(server, path):
    mine, theirs = complete(server, path, return_tokens=True), of_openai(server)
    choice, usage = theirs["choices"][0], theirs["usage"]
    assert mine["content"] == choice["text"] and mine["tokens"] == choice["token_ids"]
    assert (mine["tokens_predicted"], mine["tokens_evaluated"]) == (usage["completion_tokens"], usage["prompt_tokens"]) == (12, usage["prompt_tokens"])
    assert mine["stop"] is True and mine["stop_type"] == "limit" and mine["stopping_word"] == "" and mine["truncated"] is False
    assert mine["model"] == "story" and mine["index"] == 0 and mine["prompt"].endswith(PROMPT)
    assert "completion_probabilities" not in mine and complete(server)["tokens"] == []
    settings = mine["generation_settings"]
    assert settings["n_predict"] == settings["max_tokens"] == 12 and settings["temperature"] == 0 and settings["stream"] is False
    assert settings["dry_sequence_breakers"] == ["\n", ":", '"', "*"] and settings["repeat_last_n"] == 64
    ids = complete(server, prompt=choice["prompt_token_ids"])
    assert ids["content"] == mine["content"] and ids["prompt"] == mine["prompt"]


def test_a_stream_is_the_whole_in_pieces(server):
    whole, events = complete(server, return_tokens=True, n_probs=2), streamed(server, n_probs=2)
    *pieces, last = events
    assert "".join(e["content"] for e in pieces) == whole["content"] and len(pieces) > 1
    assert [t for e in pieces for t in e["tokens"]] == whole["tokens"]
    assert [p for e in pieces for p in e["completion_probabilities"]] == whole["completion_probabilities"]
    assert not any(e["stop"] or "timings" in e for e in pieces) and [e["tokens_predicted"] for e in pieces] == sorted(e["tokens_predicted"] for e in pieces)
    assert last["stop"] is True and last["content"] == "" and last["tokens"] == [] and "completion_probabilities" not in last
    vary = {"content", "tokens", "timings", "tokens_cached", "completion_probabilities", "generation_settings"}
    assert {k: v for k, v in last.items() if k not in vary} == {k: v for k, v in whole.items() if k not in vary}
    assert last["generation_settings"] == {**whole["generation_settings"], "stream": True}


def test_probabilities_are_the_log_probabilities_of_openais_path(server):
    mine, theirs = complete(server, n_probs=3)["completion_probabilities"], of_openai(server, logprobs=3)["choices"][0]
    assert [t["id"] for t in mine] == theirs["token_ids"] and "".join(t["token"] for t in mine) == theirs["text"]
    assert [t["logprob"] for t in mine] == theirs["logprobs"]["token_logprobs"]
    for token, tops in zip(mine, theirs["logprobs"]["top_logprobs"]):
        assert {t["token"]: t["logprob"] for t in token["top_logprobs"]} == tops and len(token["top_logprobs"]) == 3
        assert all(bytes(t["bytes"]).decode() == t["token"] for t in [token, *token["top_logprobs"]])


def test_what_ends_a_completion_is_told(server):
    whole = complete(server)["content"]
    word = whole[4:8]
    stopped = complete(server, stop=["zzz", word])
    assert stopped["content"] == whole[:whole.index(word)] and stopped["stop_type"] == "word" and stopped["stopping_word"] == word
    assert stopped["generation_settings"]["stop"] == ["zzz", word]
    events = streamed(server, stop=[word])
    assert "".join(e["content"] for e in events) == stopped["content"] and events[-1]["stopping_word"] == word
    ended = complete(server, grammar='root ::= "yes"')
    assert ended["content"] == "yes" and ended["stop_type"] == "eos" and ended["generation_settings"]["grammar"] == 'root ::= "yes"'
    assert ended["has_new_line"] is False and complete(server, grammar='root ::= "a\\nb"')["has_new_line"] is True
    assert json.loads(complete(server, n_predict=-1, json_schema={"type": "array", "items": {"const": 7}, "minItems": 2, "maxItems": 2})["content"]) == [7, 7]


def test_timings_are_measured(server):
    whole, events = complete(server, prompt="Timings are measured here, " * 20), streamed(server, timings_per_token=True)
    for answer in (whole, *events):
        t = answer["timings"]
        assert t["cache_n"] + t["prompt_n"] == answer["tokens_evaluated"] and t["predicted_n"] == answer["tokens_predicted"]
        assert t["prompt_ms"] > 0 and t["predicted_ms"] >= 0 and t["prompt_n"] > 0
        assert t["prompt_per_second"] == pytest.approx(1e3 * t["prompt_n"] / t["prompt_ms"], rel=1e-6)
        assert t["prompt_per_token_ms"] == pytest.approx(t["prompt_ms"] / t["prompt_n"], rel=1e-6)
    assert whole["timings"]["predicted_ms"] > 0
    assert whole["timings"]["predicted_per_second"] == pytest.approx(1e3 * 12 / whole["timings"]["predicted_ms"], rel=1e-6)
    assert len({e["timings"]["prompt_ms"] for e in events}) == 1 and events[-1]["timings"]["predicted_ms"] > 0
    again = complete(server, prompt="Timings are measured here, " * 20)
    anew = [complete(server, prompt="Timings are measured here, " * 20, cache_prompt=False, n_cmpl=2) for _ in (1, 2)]
    assert {(a["tokens_cached"], a["timings"]["prompt_n"]) for a in (anew[0][0], anew[1][0])} == {(0, whole["tokens_evaluated"])}
    assert {a["content"] for answers in anew for a in answers} == {whole["content"]}
    assert again["tokens_cached"] == again["timings"]["cache_n"] > whole["timings"]["cache_n"] and again["timings"]["prompt_n"] < whole["timings"]["prompt_n"]


def test_progress_of_a_prompt_comes_before_its_tokens(quire):
    s = Server("builtin", "--api-key", KEY, "--max-num-batched-tokens", "16")
    prompt = "The prince had been walking up and down the drawing room. " * 120  # long: a busy reader sees the newest progress only
    events, plain = (streamed(s, prompt=prompt, cache_prompt=False, return_progress=p) for p in (True, False))
    told = [e["prompt_progress"] for e in events if "prompt_progress" in e]
    assert len(told) > 2 and [e for e in events if "prompt_progress" in e] == events[:len(told)]
    assert all(e["content"] == "" and e["tokens"] == [] and e["stop"] is False and e["tokens_predicted"] == 0 for e in events[:len(told)])
    assert {p["total"] for p in told} == {events[-1]["tokens_evaluated"]} and told[-1]["processed"] == told[-1]["total"]
    assert [p["processed"] for p in told] == sorted({p["processed"] for p in told})
    assert [e["content"] for e in events[len(told):]] == [e["content"] for e in plain]
    assert s.stop() == 0


def test_no_tokens_may_be_wanted(server):
    prompt = "A prompt that is computed ahead of its completion, so that only its end is left to do."
    ahead = complete(server, prompt=prompt, n_predict=0)
    assert ahead["content"] == "" and ahead["tokens_predicted"] == 0 and ahead["stop_type"] == "limit"
    assert complete(server, prompt=prompt)["tokens_cached"] >= ahead["tokens_evaluated"] - 16
    *pieces, last = streamed(server, prompt=prompt, n_predict=0)
    assert pieces == [] and last["stop"] is True and last["tokens_predicted"] == 0


def test_several_prompts_and_answers_are_an_array(server):
    ids = of_openai(server)["choices"][0]["prompt_token_ids"]
    alone = [complete(server, prompt=p) for p in (PROMPT, "Once upon")]
    for prompt in ([PROMPT, "Once upon"], [ids, "Once upon"]):
        together = complete(server, prompt=prompt)
        assert [a["content"] for a in together] == [a["content"] for a in alone] and [a["index"] for a in together] == [0, 1]
    mixed = complete(server, prompt=[PROMPT, *ids[-2:]])
    assert mixed["content"] == complete(server, prompt=[*ids, *ids[-2:]])["content"]
    pieces = streamed(server, prompt=[PROMPT, "Once upon"])
    for i in (0, 1):
        assert "".join(e["content"] for e in pieces if e["index"] == i) == alone[i]["content"]
        assert [e["stop"] for e in pieces if e["index"] == i][-1] is True
    assert len(complete(server, n_cmpl=3, temperature=1, seed=5)) == 3


def test_explain_is_told_once(server):
    assert complete(server, explain=True)["explain"]["choices"][0] and "explain" not in complete(server)
    *pieces, last = streamed(server, explain=True)
    assert len(last["explain"]["choices"]) == 1 and not any("explain" in e for e in pieces)


def test_response_fields_select_members(server):
    asked = ["content", "generation_settings/n_predict", "timings/predicted_n", "nothing", "content/x", "content"]
    assert complete(server, response_fields=asked) == {"content": complete(server)["content"], "generation_settings/n_predict": 12, "timings/predicted_n": 12}
    *pieces, last = streamed(server, response_fields=["stop_type"])
    assert last == {"stop_type": "limit"} and all("tokens" in e for e in pieces)


def test_biases_and_bans(server):
    first = complete(server, n_predict=1, return_tokens=True)["tokens"][0]
    for bias in ([[first, False]], {str(first): -100}, [[complete(server, n_predict=1)["content"], False]]):
        assert complete(server, n_predict=1, return_tokens=True, logit_bias=bias)["tokens"] != [first]
    assert complete(server, n_predict=3, return_tokens=True, logit_bias=[[77, 100.0]])["tokens"] == [77] * 3
    assert complete(server, logit_bias=[[77, 1.5]])["generation_settings"]["logit_bias"] == [{"bias": 1.5, "token": 77}]


DRAWN = {"temperature": 1.5, "seed": 7, "n_predict": 24, "ignore_eos": True}


def test_samplers_are_those_that_are_named_in_their_order(server):
    cuts = {"top_k": 20, "top_p": 0.8, "min_p": 0.02}
    status, _, text = server.ask("POST", "/v1/completions", {"prompt": PROMPT, "temperature": 1.5, "seed": 7, "max_tokens": 24, "ignore_eos": True, **cuts})
    usual = complete(server, samplers=["temperature", "min_p", "top_k", "top_p"], **DRAWN, **cuts)
    assert status == 200 and usual["content"] == json.loads(text)["choices"][0]["text"]
    last = complete(server, samplers=["top_k", "top_p", "min_p", "temperature"], **DRAWN, **cuts)
    assert last["content"] == complete(server, **DRAWN, **cuts)["content"] == complete(server, samplers="edskypmxt", **DRAWN, **cuts)["content"] != usual["content"]
    assert last["generation_settings"]["samplers"] == ["top_k", "top_p", "min_p", "temperature"]
    # at top_k 1 the order does not matter; without its name it has no effect
    assert complete(server, samplers=["temperature", "top_k"], top_k=1, **DRAWN)["content"] == complete(server, n_predict=24, ignore_eos=True)["content"]
    assert complete(server, samplers=["temperature"], top_k=1, **DRAWN)["content"] == complete(server, samplers=["temperature"], **DRAWN)["content"]


def test_penalties_count_the_last_tokens(server):
    plain, fields = complete(server, n_predict=24)["content"], {"n_predict": 24, "repeat_penalty": 3.0, "presence_penalty": 1.5}
    assert complete(server, repeat_last_n=0, **fields)["content"] == plain != complete(server, **fields)["content"]
    assert complete(server, repeat_last_n=10**6, **fields)["content"] == complete(server, repeat_last_n=-1, **fields)["content"]
    assert complete(server, repeat_last_n=1, **fields)["content"] != complete(server, repeat_last_n=-1, **fields)["content"]
    tokens = complete(server, n_predict=24, repeat_last_n=-1, repeat_penalty=50.0, presence_penalty=2, frequency_penalty=2, return_tokens=True)["tokens"]
    assert len(set(tokens)) == 24


def test_values_that_llama_cpp_gives_a_meaning_are_taken(server):
    greedy = complete(server)
    cold = complete(server, temperature=-1, top_p=7)
    assert cold["content"] == greedy["content"] and cold["generation_settings"]["temperature"] == 0 and cold["generation_settings"]["top_p"] == 1
    assert complete(server, n_predict=-7, stop=["e"])["content"] == complete(server, n_predict=-1, stop=["e"])["content"]
    apart = complete(server, n_predict=24, repeat_last_n=-1, presence_penalty=1e300, frequency_penalty=1e9, return_tokens=True)["tokens"]
    assert len(set(apart)) == 24
    again = complete(server, n_predict=8, repeat_last_n=-1, presence_penalty=-1e300, return_tokens=True)["tokens"]
    assert set(again) <= set(of_openai(server)["choices"][0]["prompt_token_ids"])
    whole = complete(server, n_predict=1, n_probs=10**6)["completion_probabilities"][0]["top_logprobs"]
    assert sorted(t["id"] for t in whole) == list(range(len(whole))) and len(whole) > 20
    assert sum(math.exp(t["logprob"]) for t in whole) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("fields", [
    {"n_predict": "x"}, {"n_probs": -1}, {"n_probs": 400000, "n_predict": 10000}, {"n_probs": True}, {"temperature": "x"}, {"top_p": 0}, {"min_p": "a"}, {"top_k": 0.5},
    {"repeat_penalty": 0}, {"stop": [""]}, {"stop": 7}, {"stream": 1}, {"return_tokens": "x"}, {"timings_per_token": 1}, {"cache_prompt": 1}, {"id_slot": "x"},
    {"response_fields": {}}, {"logit_bias": 3}, {"logit_bias": [[1]]}, {"logit_bias": [[10**9, 1]]}, {"logit_bias": [["a", "b"]]}, {"grammar": 5},
    {"json_schema": {"type": 7}}, {"post_sampling_probs": True}, {"lora": [{"id": 0, "scale": 1}]}, {"min_keep": 1}, {"prompt": None}, {"prompt": ""},
    {"prompt": {}}, {"prompt": [PROMPT, 10**9]}, {"prompt": [[1], []]}, {"seed": "x"}, {"n_cmpl": 0}, {"tfs_z": 0.9},
    {"samplers": ["tfs_z"]}, {"samplers": 5}, {"samplers": "kk"}, {"samplers": ["top_k", "penalties"], "repeat_penalty": 2}, {"repeat_last_n": -2}, {"return_progress": 1}])
def test_a_wrong_field_is_named(server, fields):
    status, _, text = server.ask("POST", "/completion", {**GREEDY, **fields})
    error = json.loads(text)["error"]
    assert status == 400 and set(error) == {"code", "message", "type"} and error["code"] == 400 and error["type"] == "invalid_request_error"
    name = next(iter(fields))
    assert name in error["message"] or (name == "prompt" and "token id 1000000000" in error["message"]), error


def test_errors_have_llama_cpps_form(server):
    for path, body, key, status, kind in (("/completion", "{", KEY, 400, "invalid_request_error"), ("/infill", "[]", KEY, 400, "invalid_request_error"),
                                          ("/completion", "{}", "wrong", 401, "authentication_error"), ("/props", None, "wrong", 401, "authentication_error"),
                                          ("/completion", json.dumps({"prompt": "a", "model": "nope"}), KEY, 404, "not_found_error"),
                                          ("/completion", json.dumps({"prompt": "word " * 5000}), KEY, 400, "exceed_context_size_error")):
        got, _, text = server.ask("GET" if body is None else "POST", path, raw=body, key=key)
        error = json.loads(text)["error"]
        assert got == status and error["code"] == status and error["type"] == kind and error["message"], text
    _, headers, _ = server.ask("POST", "/completion", {**GREEDY, "n_indent": 4, "colour": 1})
    assert headers["warning"] == '199 quire "ignored: n_indent, colour"'


def test_many_clients_get_what_each_gets_alone(server):
    prompts = [f"The {n} clients of the prince" for n in range(16)]
    alone = [complete(server, prompt=p)["content"] for p in prompts]
    together = server.post_together("/completion", [{**GREEDY, "prompt": p, "stream": i % 2 == 1} for i, p in enumerate(prompts)])
    for i, (status, text) in enumerate(together):
        assert status == 200
        whole = text if i % 2 == 0 else json.dumps({"content": "".join(json.loads(b[6:])["content"] for b in text.split("\n\n") if b)})
        assert json.loads(whole)["content"] == alone[i]


def test_a_late_reader_gets_all_of_its_stream(server):
    connection = http.client.HTTPConnection(*server.address, timeout=120)
    body = {**GREEDY, "n_predict": 400, "ignore_eos": True, "stream": True, "n_probs": 5, "timings_per_token": True}
    connection.request("POST", "/completion", json.dumps(body), {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
    whole = complete(server, n_predict=400, ignore_eos=True)["content"]  # meanwhile nothing of the stream is read
    events = [json.loads(b[6:]) for b in connection.getresponse().read().decode().split("\n\n") if b]
    connection.close()
    assert "".join(e["content"] for e in events) == whole and events[-1]["timings"]["predicted_n"] == 400


def test_a_stream_that_is_left_gives_its_pages_back(quire):
    s = Server("builtin", "--api-key", KEY, "--no-enable-prefix-caching")
    connections = []
    for i in range(3):
        connection = http.client.HTTPConnection(*s.address, timeout=120)
        body = {"prompt": f"{i} times upon a time", "n_predict": -1, "ignore_eos": True, "stream": True}
        connection.request("POST", "/completion", json.dumps(body), {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
        connections.append((connection, connection.getresponse()))
    for connection, answer in connections:
        assert answer.readline().startswith(b"data: {")
        answer.close()
        connection.close()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # the server says when none runs any more
        assert pool.submit(wait_for_rest, s).result(120)
    assert s.metric("vllm:kv_cache_usage_perc") == 0 and complete(s)["tokens_predicted"] == 12
    assert s.stop() == 0


def wait_for_rest(s):
    while s.metric("vllm:num_requests_running") + s.metric("vllm:num_requests_waiting") > 0:
        pass
    return True


def test_props_tell_the_server(server):
    status, _, text = server.ask("GET", "/props")
    props = json.loads(text)
    assert status == 200 and props["model_alias"] == "story" and props["total_slots"] > 0 and props["modalities"] == {"vision": False, "audio": False}
    assert "message" in props["chat_template"]
    settings = props["default_generation_settings"]
    assert settings["n_ctx"] == 2048 and settings["params"] == complete(server, n_predict=-1, stop=["x"], temperature=None)["generation_settings"] | {"stop": []}
    assert server.ask("POST", "/props", {})[0] == 405


# ---- infill: the small model with Qwen's marks ----

MARKS = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"]


@pytest.fixture(scope="module")
def coder(quire, tmp_path_factory):
    path, ids = made(tmp_path_factory.mktemp("coder"), MARKS)
    s = Server(path, "--api-key", KEY)
    yield s, ids
    assert s.stop() == 0


def infill(s, **fields):
    status, _, text = s.ask("POST", "/infill", {"temperature": 0, "n_predict": 6, "return_tokens": True, **fields})
    assert status == 200, text
    return json.loads(text)


def test_infill_is_the_completion_of_its_marks(coder):
    s, (pre, suf, mid, repo, sep) = coder
    bos = of_openai(s, prompt="x")["choices"][0]["prompt_token_ids"][:-len(ids_of(s, "x"))]
    head = [*bos, repo, *ids_of(s, "myproject\n")]
    gap = [sep, *ids_of(s, "filename\n"), pre, *ids_of(s, "Once"), *ids_of(s, " upon"), suf, *ids_of(s, " the end."), mid]
    fields = {"input_prefix": "Once", "input_suffix": " the end.", "prompt": " upon"}
    unnamed = [sep, *ids_of(s, "tmp"), *ids_of(s, "\n"), *ids_of(s, "int b;")]
    for extra, between in ((None, []), ([{"filename": "a.c", "text": "int a;"}, {"text": "int b;"}, {"filename": None, "text": "int b;"}],
                                        [sep, *ids_of(s, "a.c"), *ids_of(s, "\n"), *ids_of(s, "int a;"), *unnamed, *unnamed])):
        mine, theirs = infill(s, input_extra=extra, **fields), complete(s, prompt=[*head, *between, *gap], n_predict=6, return_tokens=True)
        assert mine["tokens_evaluated"] == theirs["tokens_evaluated"] == len(head) + len(between) + len(gap)
        assert mine["prompt"] == theirs["prompt"] and mine["tokens"] == theirs["tokens"]
    events = streamed(s, "/infill", n_predict=6, **fields)
    assert "".join(e["content"] for e in events) == infill(s, **fields)["content"]


def test_what_an_editor_asks(coder):
    """The requests of llama.vim: one to keep the prompt ahead, one for the text."""
    s, _ = coder
    common = {"id_slot": 0, "input_prefix": "int main() {\n", "input_suffix": "}\n", "input_extra": [{"filename": "a.c", "text": "int a;\n", "time": 1.5}],
              "stream": False, "samplers": ["top_k", "top_p", "infill"], "top_k": 40, "top_p": 0.9, "cache_prompt": True, "n_indent": 2}
    status, _, text = s.ask("POST", "/infill", {**common, "prompt": "", "n_predict": 0, "t_max_prompt_ms": 1, "t_max_predict_ms": 1, "response_fields": [""]})
    assert status == 200 and json.loads(text) == {}
    names = ["content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms", "timings/prompt_per_second", "timings/predicted_n",
             "timings/predicted_ms", "timings/predicted_per_token_ms", "timings/predicted_per_second", "truncated", "tokens_cached"]
    status, headers, text = s.ask("POST", "/infill", {**common, "prompt": "  ", "n_predict": 8, "stop": ["zzz"], "t_max_prompt_ms": 500, "t_max_predict_ms": 1000, "response_fields": names})
    answer = json.loads(text)
    assert status == 200 and sorted(answer) == sorted(names) and answer["tokens_cached"] > 16 and answer["timings/predicted_n"] <= 8
    assert headers["warning"] == '199 quire "ignored: samplers.infill, n_indent, t_max_prompt_ms, t_max_predict_ms"'


def test_no_text_of_an_infill_becomes_a_mark(coder):
    s, marks = coder
    text = "".join(MARKS) + "<|endoftext|>"
    answer = infill(s, input_prefix=text, input_suffix=text, prompt=text, input_extra=[{"filename": text, "text": text}])
    counts = [answer["prompt"].count(m) for m in MARKS]
    plain = infill(s, input_prefix="a", input_suffix="a", prompt="a", input_extra=[{"filename": "a", "text": "a"}])
    assert counts == [plain["prompt"].count(m) + 5 for m in MARKS] and answer["tokens_evaluated"] > plain["tokens_evaluated"] + 5 * len(MARKS)


def test_infill_is_refused_by_name(coder, server):
    s, _ = coder
    for fields, name in (({}, "input_prefix"), ({"input_prefix": ""}, "input_suffix"), ({"input_prefix": 1, "input_suffix": ""}, "input_prefix"),
                         ({"input_prefix": "", "input_suffix": "", "prompt": ["a"]}, "prompt"),
                         ({"input_prefix": "", "input_suffix": "", "input_extra": [{"filename": "a"}]}, "input_extra[0]"),
                         ({"input_prefix": "", "input_suffix": "", "n_predict": 1.5}, "n_predict")):
        status, _, text = s.ask("POST", "/infill", fields)
        assert status == 400 and name in json.loads(text)["error"]["message"], text
    status, _, text = server.ask("POST", "/infill", {"input_prefix": "a", "input_suffix": "b"})
    assert status == 400 and "no fill-in-the-middle tokens; leave input_suffix out" in json.loads(text)["error"]["message"], text
