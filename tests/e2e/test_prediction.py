"""Predicted outputs: `prediction` of chats is drafted. Answers are those without it to the letter, in fewer steps, and usage says what of it was used."""
import json

import openai
import pytest

from conftest import KEY, Server

MESSAGES = [{"role": "user", "content": "Rewrite the file: rename the king to prince."}]
NGRAM = json.dumps({"method": "ngram", "num_speculative_tokens": 5})
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 4}},
          "required": ["name", "tags"]}
RULE = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "note", "parameters": {"type": "object", "properties": {"text": {"type": "string", "maxLength": 30}}, "required": ["text"]}}}


@pytest.fixture(scope="module", params=[(), ("--speculative-config", NGRAM), ("--max-num-seqs", "1"), ("--kv-pages", "40", "--page-size", "16", "--max-model-len", "600")],
                ids=["plain", "beside ngram", "one sequence", "few pages"])
def server(quire, request):
    s = Server("builtin", "--api-key", KEY, *request.param)
    yield s
    assert s.stop() == 0


def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0, timeout=300)


def ask(server, prediction=None, **fields):
    given = {} if prediction is None else {"prediction": {"type": "content", "content": prediction}}
    return client(server).chat.completions.create(model="builtin", messages=MESSAGES, **{"temperature": 0, "max_tokens": 120, **fields}, **given)


def edited(text):
    """The text with some words replaced."""
    words = text.split(" ")
    for i in range(5, len(words), 12):
        words[i] = "Prince"
    return " ".join(words)


def choices(answer):
    return [c.model_dump() for c in answer.choices]


def generated(answer):
    """Tokens of an answer: rejected ones of the prediction are billed beside them."""
    details = answer.usage.completion_tokens_details
    return answer.usage.completion_tokens - (details.rejected_prediction_tokens if details else 0)


def test_an_edited_text_comes_in_few_steps_and_is_the_same(server):
    plain = ask(server)
    text = plain.choices[0].message.content
    assert plain.usage.completion_tokens_details is None and len(text.split(" ")) > 20
    before = {name: server.metric(name) for name in ("quire_steps_total", "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total")}
    with_it = ask(server, edited(text))
    steps, drafted, accepted = (server.metric(name) - n for name, n in before.items())
    assert choices(with_it) == choices(plain)
    details = with_it.usage.completion_tokens_details
    assert details.accepted_prediction_tokens > 20 and details.rejected_prediction_tokens > 0
    assert details.accepted_prediction_tokens <= accepted and details.accepted_prediction_tokens + details.rejected_prediction_tokens <= drafted
    assert generated(with_it) == plain.usage.completion_tokens and with_it.usage.total_tokens == with_it.usage.prompt_tokens + with_it.usage.completion_tokens
    assert steps < plain.usage.completion_tokens * 0.7


def test_the_answer_itself_is_accepted_but_for_a_token_of_each_step(server):
    plain = ask(server)
    before = server.metric("quire_steps_total")
    with_it = ask(server, [{"type": "text", "text": plain.choices[0].message.content[:50]}, {"type": "text", "text": plain.choices[0].message.content[50:]}])
    steps = server.metric("quire_steps_total") - before
    details = with_it.usage.completion_tokens_details
    assert choices(with_it) == choices(plain)
    assert details.accepted_prediction_tokens > plain.usage.completion_tokens * 0.6 and steps < plain.usage.completion_tokens * 0.4


@pytest.mark.parametrize("fields", [
    {"temperature": 0.9, "seed": 7},
    {"temperature": 0.7, "seed": 3, "n": 3, "logprobs": True, "top_logprobs": 2, "presence_penalty": 0.5},
    {"response_format": RULE, "temperature": 0.8, "seed": 5},
    {"stop": ["."], "max_tokens": 200},
    {"stop": ["\n"], "temperature": 0.4, "seed": 9},
    {"max_completion_tokens": 17},
    {"max_tokens": 1},
], ids=["sampled", "n and logprobs", "schema", "stop", "stop, sampled", "short", "one token"])
def test_nothing_else_changes(server, fields):
    plain = ask(server, **fields)
    text = plain.choices[0].message.content
    for prediction in (text, text + " and more" * 40, edited(text), text[: len(text) // 2], "not at all " * 50, "", "\x00<|im_end|>\ufffd"):
        with_it = ask(server, prediction, **fields)
        assert choices(with_it) == choices(plain), prediction
        assert generated(with_it) == plain.usage.completion_tokens
        details = with_it.usage.completion_tokens_details
        assert 0 <= details.accepted_prediction_tokens <= plain.usage.completion_tokens and details.rejected_prediction_tokens >= 0
        assert prediction or details.accepted_prediction_tokens + details.rejected_prediction_tokens == 0


def test_a_stream_ends_with_the_same_usage(server):
    text = edited(ask(server).choices[0].message.content)
    whole = ask(server, text)
    chunks = list(ask(server, text, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert [c for c in chunks if c.usage] == chunks[-1:]
    details = chunks[-1].usage.completion_tokens_details
    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens, chunks[-1].usage.completion_tokens) == (
        whole.usage.completion_tokens_details.accepted_prediction_tokens, whole.usage.completion_tokens_details.rejected_prediction_tokens, whole.usage.completion_tokens)
    assert details.accepted_prediction_tokens > 0


def test_a_forced_call_is_drafted(server):
    fields = {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "note"}}, "max_tokens": 80}
    plain = ask(server, **fields)
    arguments = plain.choices[0].message.tool_calls[0].function.arguments
    with_it = ask(server, arguments, **fields)
    assert with_it.choices[0].message.tool_calls[0].function.arguments == arguments
    assert generated(with_it) == plain.usage.completion_tokens


def test_a_prediction_of_any_length_is_taken(server):
    plain = ask(server)
    long = ask(server, plain.choices[0].message.content + "long " * 60000)
    assert choices(long) == choices(plain) and long.usage.completion_tokens_details.accepted_prediction_tokens > 20


def test_the_report_has_its_tokens(server):
    text = ask(server).choices[0].message.content
    with_it = ask(server, text, extra_body={"explain": True})
    details = with_it.usage.completion_tokens_details
    assert with_it.explain["choices"][0]["prediction"] == {"accepted_tokens": details.accepted_prediction_tokens, "rejected_tokens": details.rejected_prediction_tokens}


@pytest.mark.parametrize("prediction,word", [
    ({"type": "text", "content": "x"}, "prediction.type"),
    ({"content": "x"}, "prediction.type"),
    ({"type": "content"}, "prediction.content"),
    ({"type": "content", "content": 5}, "prediction.content"),
    ({"type": "content", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]}, "prediction.content[1]"),
    ({"type": "content", "content": ["a"]}, "prediction.content[0]"),
    ("x", "must be an object"),
])
def test_what_is_no_prediction_is_refused(server, prediction, word):
    with pytest.raises(openai.BadRequestError) as refused:
        client(server).chat.completions.create(model="builtin", messages=MESSAGES, max_tokens=4, extra_body={"prediction": prediction})
    assert word in refused.value.body["message"] and refused.value.body["param"] in ("prediction", "body.prediction")


def test_beams_have_none(server):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(server, "x", n=2, extra_body={"use_beam_search": True})
    assert refused.value.body["param"] == "prediction"
