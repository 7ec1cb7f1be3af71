"""Tool calls in the formats of models: from the opening mark on, a call is held to its tool's schema, under every tool_choice."""
import json

import openai
import pytest

from conftest import KEY, Server
from test_tools import NARROW, USER, joined, marked, whole, without_ids  # noqa: F401  (marked is a fixture)

TEXT = {"type": "function", "function": {"name": "note", "parameters": {
    "type": "object", "properties": {"text": {"type": "string", "minLength": 1, "maxLength": 12}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
                                     "level": {"enum": [1, 2, None]}}, "required": ["text", "level"], "additionalProperties": False}}}
SPECULATION = json.dumps({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1})
MARKS = {"hermes": "<tool_call>", "qwen3_coder": "<tool_call>", "mistral": "[TOOL_CALLS]"}


def obeys(call):
    arguments = json.loads(call["arguments"])
    if call["name"] == "paint":
        return arguments["color"] in ("red", "green") and 1 <= arguments["times"] <= 9 and len(arguments) == 2
    return (call["name"] == "note" and 1 <= len(arguments["text"]) <= 12 and arguments["level"] in (1, 2, None)
            and all(tag in ("a", "b") for tag in arguments.get("tags", [])) and arguments.keys() <= {"text", "tags", "level"})


def answers(client, **fields):
    """The choices of the whole answer, which the streamed one equals."""
    fields = {"model": "builtin", "messages": USER, "tools": [NARROW, TEXT], "max_tokens": 300, "temperature": 1.2, "seed": 5, **fields}
    found = whole(client.chat.completions.create(**fields))
    assert without_ids(joined(client.chat.completions.create(stream=True, **fields), fields.get("n", 1))) == without_ids(found)
    return found


@pytest.fixture(scope="module", params=list(MARKS))
def formatted(quire, request):
    servers = [Server("builtin", "--api-key", KEY, "--tool-call-parser", request.param, *flags) for flags in ((), ("--speculative-config", SPECULATION))]
    clients = [openai.OpenAI(base_url=s.url + "/v1", api_key=KEY, max_retries=0) for s in servers]
    yield (*clients, MARKS[request.param])
    for client in clients:
        client.close()
    assert [s.stop() for s in servers] == [0, 0]


def test_a_required_call_is_in_the_models_own_format(formatted):
    client, _, mark = formatted
    for found in answers(client, tool_choice="required", n=2, parallel_tool_calls=False):
        assert found["content"] == "" and found["finish"] == "tool_calls" and len(found["calls"]) == 1 and obeys(found["calls"][0])
    answer = client.chat.completions.create(model="builtin", messages=USER, tools=[NARROW], tool_choice="required", logprobs=True, max_tokens=50)
    assert "".join(t.token for t in answer.choices[0].logprobs.content).startswith(mark)
    named = {"type": "function", "function": {"name": "note"}}
    for found in answers(client, tool_choice=named, n=2):
        assert found["finish"] == "stop" and [c["name"] for c in found["calls"].values()] == ["note"] and obeys(found["calls"][0])


def test_speculation_changes_no_call(formatted):
    plain, speculating, _ = formatted
    for seed in range(4):
        fields = {"tool_choice": "required", "n": 2, "seed": seed, "temperature": 0.9}
        assert without_ids(answers(plain, **fields)) == without_ids(answers(speculating, **fields))
    auto = {"temperature": 0}
    assert without_ids(answers(plain, **auto)) == without_ids(answers(speculating, **auto))


def test_under_auto_the_opening_mark_begins_a_call_of_the_schema(marked):
    opening = {str(marked.first + 2): 100}
    for seed in range(3):
        for found in answers(marked, logit_bias=opening, n=2, seed=seed, parallel_tool_calls=False):
            assert found["content"] == "" and found["finish"] == "tool_calls" and len(found["calls"]) == 1 and obeys(found["calls"][0])
    never = {str(marked.first + 2): -100}
    [found] = answers(marked, logit_bias=never, max_tokens=20)
    assert found["calls"] == {} and found["content"]


def test_a_schema_that_cannot_be_enforced_is_refused_where_it_is_strict(marked):
    function = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}, "n": {"type": "integer"}}, "required": ["n"]}}
    strict = {"type": "function", "function": {**function, "strict": True}}
    with pytest.raises(openai.BadRequestError) as refused:
        answers(marked, tools=[strict])
    assert refused.value.param == "tools" and "$ref" in refused.value.message
    bias = {str(marked.first + 2): 100, "2": 10, "28": 10, "61": 6, "93": 6}  # it calls, and ends strings, arrays and objects soon
    for seed in range(3):
        [found] = answers(marked, tools=[{"type": "function", "function": function}], logit_bias=bias, seed=seed, parallel_tool_calls=False)
        assert found["finish"] == "tool_calls" and type(json.loads(found["calls"][0]["arguments"])["n"]) is int
