"""The recorded answers of golden/api, as far as this version's endpoints and fields go: status, structure, event order, usage, greedy text."""
import json
import re

import pytest

from conftest import SHARED

RECORDS = SHARED / "golden/api/vllm-0.32.0.jsonl"

ENDPOINTS = {"/health", "/ping", "/version", "/v1/models", "/v1/models/tiny", "/v1/models/nope", "/nope", "/metrics", "/v1/completions",
             "/v1/chat/completions", "/tokenize", "/detokenize", "/v1/completions/render", "/v1/chat/completions/render", "/load"}
# What has nothing that could differ by chance.
TOKENS = {"/tokenize", "/detokenize"}
# Fields that this version refuses, unless their value is the one that changes nothing.
LATER = {"suffix", "chat_template"}
# What only the reference has.
NOT_ASKED = {"routed_experts", "kv_transfer_params", "ec_transfer_params", "metrics", "permission", "created_cache_tokens",
             "multimodal_tokens"}
ERROR_TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 405: "invalid_request_error"}
# cached_tokens: the reference reuses whole blocks only.
# tokens, text_offset: here the tokens join to the text, also where one is a part of a character.
VARIES = {"id", "request_id", "created", "system_fingerprint", "root", "owned_by", "version", "cached_tokens", "tokens", "text_offset"}


def records():
    if not RECORDS.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"{RECORDS} is not at hand"))]
    all_records = [json.loads(line) for line in RECORDS.read_text().split("\n") if line]
    return [pytest.param(r, id=r["name"]) for r in all_records if r["path"] in ENDPOINTS]


def later_field(record):
    fields = sorted(LATER & set(record["body"] or {}))
    return fields[0] if fields else None


def writes_json(body):
    """The answer is JSON, whose white space and order of members differ from the reference's."""
    form, outputs = body.get("response_format", {}), body.get("structured_outputs", {})
    return form.get("type") in ("json_object", "json_schema") or bool({"json", "json_object"} & set(outputs))


def same_structure(ours, theirs, where, exact):
    """Every field of the reference is there with the same type; with exact, also the same value."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict), where
        for key, value in theirs.items():
            if key not in NOT_ASKED and not (key == "bytes" and value == []):  # the reference has none for a part of a character
                assert key in ours, f"{where}.{key} is missing"
                best_kept = key == ""  # in top_logprobs: of two tokens without a text of their own, where the reference keeps the last
                same_structure(ours[key], value, f"{where}.{key}", exact and key not in VARIES and not best_kept)
    elif isinstance(theirs, list):
        assert isinstance(ours, list) and len(ours) == len(theirs), where
        for i, value in enumerate(theirs):
            same_structure(ours[i], value, f"{where}[{i}]", exact)
    elif exact and isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-4), where
    elif exact:
        assert ours == theirs, where
    else:
        assert isinstance(ours, type(theirs)) or theirs is None or ours is None, where


def without_classes(param):
    """The reference puts names of its own Python classes into some: body.messages.0.ChatCompletionDeveloperMessageParam.content."""
    return param and ".".join(part for part in param.split(".") if not part[:1].isupper())


def check_error(status, text, record):
    error = json.loads(text)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ERROR_TYPES[status]
    assert error["code"] == status
    assert error["message"]
    theirs = record.get("json", {}).get("error")
    if isinstance(theirs, dict):
        assert error["param"] == without_classes(theirs["param"])


def check_samples(events, n):
    """Sampled choices of one stream come in any order: each says its role first and its end once."""
    chunks = [json.loads(e.removeprefix("data: "))["choices"] for e in events[:-1]]
    for i in range(n):
        mine = [c for chunk in chunks for c in chunk if c["index"] == i]
        assert mine[0]["delta"]["role"] == "assistant"
        assert [c["finish_reason"] is not None for c in mine] == [False] * (len(mine) - 1) + [True]
        assert any(c["delta"].get("content") for c in mine)


def check_stream(text, record, exact):
    events = [e for e in text.split("\n\n") if e]
    theirs = record["events"]
    assert events[-1] == theirs[-1] == "data: [DONE]"
    n = record["body"].get("n", 1)
    if n > 1 and not exact:
        check_samples(events, n)
        theirs = theirs[:n + 1]  # the roles come first
    if writes_json(record["body"]):  # which ends elsewhere
        events, theirs = events[:2] + events[-1:], theirs[:2] + theirs[-1:]
    if exact:
        assert len(events) == len(theirs)
    for i, (a, b) in enumerate(zip(events[:-1], theirs[:-1])):
        same_structure(json.loads(a.removeprefix("data: ")), json.loads(b.removeprefix("data: ")), f"event {i}", exact)
    ids = {json.loads(e.removeprefix("data: "))["id"] for e in events[:-1]}
    assert len(ids) == 1


def check_forced_call(text, record):
    """A call that tool_choice forces: the reference's structure, with arguments of the tool's schema, which the reference's are not."""
    if "events" in record:
        events, theirs = ([json.loads(e.removeprefix("data: ")) for e in es if e and "[DONE]" not in e] for es in (text.split("\n\n"), record["events"]))
        for i in (0, 1, 2, -1):
            same_structure(events[i], theirs[i], f"event {i}", False)
        calls = [c for e in events for choice in e["choices"] for c in choice["delta"].get("tool_calls", [])]
    else:
        answer = json.loads(text)
        same_structure(answer, record["json"], "answer", False)
        calls = answer["choices"][0]["message"]["tool_calls"]
    assert calls[0]["type"] == "function" and calls[0]["id"]
    assert {c["function"]["name"] for c in calls if "name" in c["function"]} == {"get_weather"}
    arguments = "".join(c["function"]["arguments"] for c in calls if c.get("index", 0) == 0)
    assert re.match(r'\{\s*"city"\s*:\s*"', arguments), arguments


@pytest.mark.parametrize("record", records())
def test_answer(golden_server, record):
    status, headers, text = golden_server.ask(record["method"], record["path"], record["body"], record["raw"], record["headers"])
    if record["path"] in ("/v1/models/tiny", "/v1/models/nope"):  # the reference does not know this endpoint
        assert status == (200 if record["path"].endswith("tiny") else 404)
        if status == 200:
            assert json.loads(text)["id"] == "tiny"
        return
    if record["name"] == "chat: tool_choice without tools":  # the reference refuses it; clients that always send it are answered here
        assert status == 200, text
        return
    field = later_field(record)
    if field is not None:  # refused, never passed over in silence
        assert status == 400, text
        error = json.loads(text)["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"]
        return
    if record["name"] == "completion: n 2 greedy":  # the reference refuses it; here the samples are equal
        choices = json.loads(text)["choices"]
        assert [c["index"] for c in choices] == [0, 1]
        assert choices[0]["text"] == choices[1]["text"]
        return
    if record["name"] == "completion: max_tokens huge":  # the reference refuses it; here it is cut, as what exceeds the rest of the context is
        assert status == 200 and json.loads(text)["choices"][0]["finish_reason"] == "length"
        return
    assert status == record["status"], text
    assert record["answer_headers"].get("allow") in (None, headers.get("allow"))
    if status != 200:
        if record["name"] == "completion: truncate_prompt_tokens = 0":  # the reference names no field
            record["json"]["error"]["param"] = "prompt"
        check_error(status, text, record)
        return
    assert headers.get("content-type", "").split(";")[0] == record["content_type"].split(";")[0]
    body = record["body"] or {}
    if body.get("tool_choice") not in (None, "auto", "none"):
        check_forced_call(text, record)
        return
    exact = record["path"] in TOKENS or (body.get("temperature") == 0 and not writes_json(body))
    if body.get("max_tokens") == 0:  # the reference counts a token that it does not show
        record["json"]["usage"]["total_tokens"] -= record["json"]["usage"]["completion_tokens"]
        record["json"]["usage"]["completion_tokens"] = 0
    if "events" in record:
        check_stream(text, record, exact)
    elif "json" in record:
        if body.get("use_beam_search"):  # the reference does not say what its searches found in the cache, and shows unfinished characters
            del record["json"]["usage"]["prompt_tokens_details"]
            for choice in record["json"]["choices"]:
                choice["text"] = choice["text"].rstrip("\ufffd")
        same_structure(json.loads(text), record["json"], "answer", exact)
    elif record["path"] == "/metrics":
        assert "vllm:num_requests_running" in text
    else:
        assert text == record["text"]
