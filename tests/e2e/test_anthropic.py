"""Anthropic's Messages API through its own Python package, unmodified, and by hand: blocks, streams, tools, thinking, counts, errors, and a coding
assistant's dialogue. What the model writes is forced by a regex where an answer must be known."""
import http.client
import json
import re
import shutil

import anthropic
import pytest

from conftest import KEY, Server

# The prompt ends in a closed block of reasoning: a regex then binds the answer from its first token, reasoning and all.
TEMPLATE = ("{# <tool_call> <think> #}{% if tools %}tools: {% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}"
            "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content or '' }}"
            "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}({{ c.function.arguments | tojson }})</tool_call>{% endfor %}\n"
            "{% endfor %}{% if add_generation_prompt %}assistant:{% if enable_thinking %}!{% endif %}<think></think>{% endif %}")
TOOL = {"name": "get_weather", "description": "The weather of a city.", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
USER = [{"role": "user", "content": "What is the weather in Rome?"}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": [1, 2]}}\n</tool_call>'
SECOND = '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>'
THINKING = {"type": "enabled", "budget_tokens": 200}


@pytest.fixture(scope="module")
def talker(quire, tmp_path_factory):
    path = tmp_path_factory.mktemp("messages") / "template.jinja"
    path.write_text(TEMPLATE)
    s = Server("builtin", "--api-key", KEY, "--chat-template", str(path))
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def client(talker):
    with anthropic.Anthropic(base_url=talker.url, api_key=KEY, max_retries=0) as c:
        yield c


def fields_of(text=None, **fields):
    """The fields of a request, with those of a model that writes this text, whole."""
    extra = {"temperature": 0, **fields.pop("extra_body", {})}
    if text is not None:
        extra["regex"] = re.escape(text)
    return {"model": "builtin", "messages": USER, "max_tokens": 300, "extra_body": extra, **fields}


def plain(message):
    """Blocks without ids, how it ended, and the tokens of its usage."""
    blocks = [{k: v for k, v in b.model_dump(exclude_none=True).items() if k != "id"} for b in message.content]
    usage = message.usage
    return blocks, message.stop_reason, message.stop_sequence, usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens


def both(client, text=None, **fields):
    """The whole message, which the streamed one equals."""
    whole = client.messages.create(**fields_of(text, **fields))
    with client.messages.stream(**fields_of(text, **fields)) as stream:
        streamed = stream.get_final_message()
    assert plain(whole) == plain(streamed)
    return whole


def test_a_message_has_text_usage_and_an_id(client):
    found = both(client, "Sunny.")
    assert found.id.startswith("msg_") and found.role == "assistant" and found.model == "builtin" and found.type == "message"
    assert [b.text for b in found.content] == ["Sunny."] and found.stop_reason == "end_turn" and found.stop_sequence is None
    assert found._request_id.startswith("req-")
    again = client.messages.create(**fields_of("Sunny."))
    assert again.usage.input_tokens == 1 and again.usage.cache_read_input_tokens == found.usage.input_tokens + found.usage.cache_read_input_tokens - 1
    assert again.usage.cache_creation_input_tokens == 0


def test_it_ends_by_length_and_by_a_stop_sequence(client):
    assert both(client, max_tokens=3).stop_reason == "max_tokens"
    found = both(client, "Sunny. Or not.", stop_sequences=["ny.", "zz"])
    assert (found.content[0].text, found.stop_reason, found.stop_sequence) == ("Sun", "stop_sequence", "ny.")
    cut = both(client, CALL, tools=[TOOL], stop_sequences=["Rome"])
    assert (cut.content[0].type, cut.stop_reason, cut.stop_sequence) == ("tool_use", "stop_sequence", "Rome")


def test_system_and_content_may_be_blocks_with_cache_control(client):
    def total(**fields):
        usage = client.messages.create(**fields_of("x", **fields)).usage
        return usage.input_tokens + usage.cache_read_input_tokens
    kept = {"cache_control": {"type": "ephemeral"}}
    blocks = total(system=[{"type": "text", "text": "Be brief.", **kept}], messages=[{"role": "user", "content": [{"type": "text", "text": "Hi", **kept}]}])
    assert blocks == total(system="Be brief.", messages=[{"role": "user", "content": "Hi"}]) > total(messages=[{"role": "user", "content": "Hi"}])
    apart = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert total(messages=apart) == total(messages=[{"role": "user", "content": "a\nb"}])


def test_an_assistants_turn_at_the_end_is_continued(client):
    found = both(client, "Paris", messages=[*USER, {"role": "assistant", "content": "It is "}])
    assert found.content[0].text == "Paris"


def test_count_tokens_is_what_the_prompt_has(client):
    signed = client.messages.create(**fields_of("<think>Hm.</think>x", thinking=THINKING)).content
    for fields in ({}, {"system": "Be brief."}, {"tools": [TOOL], "tool_choice": {"type": "any"}}, {"thinking": THINKING},
                   {"messages": [*USER, {"role": "assistant", "content": signed}, *USER]}, {"messages": [*USER, {"role": "assistant", "content": "It is"}]}):
        given = {"model": "builtin", "messages": USER, **fields}
        usage = client.messages.create(**fields_of(None, max_tokens=1, **fields) if "tools" in fields else fields_of("x", **fields)).usage
        assert client.messages.count_tokens(**given).input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\].content\[0\].type") as why:
        client.messages.count_tokens(model="builtin", messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}])
    assert why.value.body["error"]["type"] == "invalid_request_error"


# ---- tools ----


def test_blocks_stand_in_the_order_in_which_they_came(client):
    """Text after a call is a block after it, in a whole message too."""
    text = f"<think>Hm.</think>Wait.{CALL}Then.{SECOND}Done."
    found = both(client, text, tools=[TOOL], thinking=THINKING, max_tokens=500).content
    assert [b.type for b in found] == ["thinking", "text", "tool_use", "text", "tool_use", "text"]
    assert [b.text.strip() for b in found if b.type == "text"] == ["Wait.", "Then.", "Done."]
    assert [b.name for b in found if b.type == "tool_use"] == ["get_weather", "other"]
    again = [*USER, {"role": "assistant", "content": found}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": b.id, "content": "ok"} for b in found if b.type == "tool_use"]}]
    assert both(client, "So.", messages=again, tools=[TOOL]).content[0].text == "So."


def test_calls_come_as_blocks_and_their_results_go_back(client):
    found = both(client, f"Let me look.\n{CALL}\n{SECOND}", tools=[TOOL])
    assert [b.type for b in found.content] == ["text", "tool_use", "tool_use"] and found.stop_reason == "tool_use"
    text, first, second = found.content
    assert text.text.strip() == "Let me look." and (first.name, first.input) == ("get_weather", {"city": "Rome", "days": [1, 2]})
    assert (second.name, second.input) == ("other", {})
    assert all(re.fullmatch(r"toolu_[0-9A-Za-z]{9}", b.id) for b in (first, second)) and first.id != second.id
    results = [{"type": "tool_result", "tool_use_id": first.id, "content": [{"type": "text", "text": "Sunny"}]},
               {"type": "tool_result", "tool_use_id": second.id, "content": "no such tool", "is_error": True}]
    talk = [*USER, {"role": "assistant", "content": found.content}, {"role": "user", "content": results}]
    assert both(client, "Sunny.", tools=[TOOL], messages=talk).content[0].text == "Sunny."
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[2\] must answer each tool_use.*" + second.id):
        client.messages.create(**fields_of(messages=[*talk[:2], {"role": "user", "content": results[:1]}]))


def test_the_events_of_a_call_are_those_of_the_protocol(client):
    kinds = []
    with client.messages.create(**fields_of(f"So:\n{CALL}", tools=[TOOL], stream=True)) as events:
        for event in events:
            kind = event.type if event.type != "content_block_delta" else event.delta.type
            if not kinds or kinds[-1] != kind:
                kinds.append(kind)
    assert kinds == ["message_start", "content_block_start", "text_delta", "content_block_stop", "content_block_start", "input_json_delta",
                     "content_block_stop", "message_delta", "message_stop"]


def test_tool_choice_forces_a_call(client):
    tool = {"name": "ready", "input_schema": {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"], "additionalProperties": False}}
    for choice in ({"type": "any"}, {"type": "tool", "name": "ready"}):
        found = both(client, tools=[TOOL, tool], tool_choice={**choice, "disable_parallel_tool_use": True}, max_tokens=200)
        calls = [b for b in found.content if b.type == "tool_use"]
        assert found.stop_reason in ("tool_use", "max_tokens") and len(calls) == 1
        assert choice["type"] == "any" or (calls[0].name == "ready" and isinstance(calls[0].input["sure"], bool))
    found = both(client, CALL, tools=[TOOL], tool_choice={"type": "none"})
    assert found.content[0].text == CALL and found.stop_reason == "end_turn"


# ---- thinking ----


def test_thinking_is_a_signed_block_that_goes_back(client):
    found = both(client, "<think>Rome, I see.</think>\n\nSunny.", thinking=THINKING)
    thought, text = found.content
    assert (thought.type, thought.thinking) == ("thinking", "Rome, I see.") and text.text.strip() == "Sunny." and thought.signature
    talk = [*USER, {"role": "assistant", "content": found.content}, {"role": "user", "content": "Thanks."}]
    assert both(client, "Bye.", messages=talk, thinking=THINKING).content[0].text == "Bye."
    for changed in ({"thinking": "Paris, I see."}, {"signature": thought.signature[::-1]}, {"signature": ""}):
        block = {**thought.model_dump(), **changed}
        with pytest.raises(anthropic.BadRequestError, match=r"messages\[1\].content\[0\].signature .*Invalid `signature` in `thinking` block"):
            client.messages.create(**fields_of(messages=[*USER, {"role": "assistant", "content": [block]}, *USER]))


def test_thinking_is_off_unless_it_is_asked_for(client):
    for thinking in ({}, {"thinking": {"type": "disabled"}}, {"thinking": {**THINKING, "display": "omitted"}}):
        found = both(client, "<think>Hm.</think>Sunny.", **thinking)
        assert [b.type for b in found.content] == ["text"] and found.content[0].text == "Sunny."
    # the template has a mark more for it
    counts = [client.messages.create(**fields_of("x", **t)).usage for t in ({}, {"thinking": THINKING})]
    totals = [u.input_tokens + u.cache_read_input_tokens for u in counts]
    assert totals[1] == totals[0] + 1


# ---- structured answers ----


def test_an_answer_obeys_its_schema(client):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "y"]}},
              "required": ["a", "b"], "additionalProperties": False}
    found = both(client, output_config={"format": {"type": "json_schema", "schema": schema}})
    value = json.loads(found.content[0].text)
    assert set(value) == {"a", "b"} and 0 <= value["a"] <= 99
    with pytest.raises(anthropic.BadRequestError, match=r"output_config\.format"):
        client.messages.create(**fields_of(output_config={"format": {"type": "json_schema", "schema": {"type": "nonsense"}}}))


# ---- models, errors, keys ----


def test_models_are_listed_in_this_form(client):
    [model] = list(client.models.list())
    assert (model.id, model.type, model.display_name) == ("builtin", "model", "builtin") and model.max_input_tokens > 0 and model.created_at.year > 2000
    assert client.models.retrieve("builtin") == model
    with pytest.raises(anthropic.NotFoundError) as why:
        client.models.retrieve("nope")
    assert why.value.body["error"]["type"] == "not_found_error"


def test_errors_name_the_field_and_the_request(client, talker):
    with pytest.raises(anthropic.BadRequestError) as why:
        client.messages.create(**fields_of(extra_body={"temperature": 2}))
    assert why.value.body["error"] == {"type": "invalid_request_error", "message": "temperature is 2; it must be from 0 to 1"}
    assert why.value.body["request_id"] == why.value.request_id
    with pytest.raises(anthropic.NotFoundError, match="claude-none"):
        client.messages.create(**fields_of(model="claude-none"))
    with anthropic.Anthropic(base_url=talker.url, api_key="wrong", max_retries=0) as other:
        with pytest.raises(anthropic.AuthenticationError):
            other.messages.create(**fields_of())
    with anthropic.Anthropic(base_url=talker.url, auth_token=KEY, max_retries=0) as other:
        assert other.messages.create(**fields_of("x")).content[0].text == "x"


HOSTILE = [
    (b"", "empty"), (b"[1]", "an array"), (b'{"max_tokens": 1, "messages": [', "not valid JSON"), (b'{"max_tokens": "x"}', "max_tokens"),
    (b'{"max_tokens": 1, "messages": "x"}', "messages"), (b'{"max_tokens": 1e400, "messages": []}', ""), (b'{"a": ' + b"[" * 5000, ""),
    (b'{"max_tokens": 1, "messages": [{"role": "user", "content": [' + b'{"type": "text", "text": ""},' * 50000 + b"7]}]}", "content[50000]"),
    (b'{"max_tokens": 1, "messages": [' + b'{"role": "user", "content": "x"},' * 3000 + b"{}]}", "messages[3000].role"),
    (b'{"max_tokens": 1, "system": [[]], "messages": [{"role": "user", "content": "x"}]}', "system[0]"),
    (b'{"max_tokens": 1, "messages": [{"role": "assistant", "content": [' + b",".join(
        b'{"type": "tool_use", "id": "%d", "name": "f", "input": {}}' % i for i in range(1100)) + b"]}]}", "more than 1024 calls"),
]


@pytest.mark.parametrize("body, words", HOSTILE)
def test_a_hostile_body_is_refused_in_this_form(talker, body, words):
    status, headers, text = talker.ask("POST", "/v1/messages", raw=body, headers={"anthropic-version": "2023-06-01"})
    error = json.loads(text)
    assert status == 400 and error["type"] == "error" and error["error"]["type"] == "invalid_request_error", text
    assert words in error["error"]["message"] and headers["request-id"] == error["request_id"]


def test_unknown_fields_and_betas_are_named_or_ignored(talker):
    body = {"max_tokens": 2, "messages": USER, "zebra": 1, "metadata": {"user_id": "u"}, "service_tier": "auto"}
    status, headers, _ = talker.ask("POST", "/v1/messages?beta=true", body, headers={"anthropic-version": "2023-06-01", "anthropic-beta": "x-2025, y"})
    assert status == 200 and headers["warning"] == '199 quire "ignored: zebra"'


# ---- a coding assistant ----

CODER = ("{%- macro calls(m) %}{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n"
         "</tool_call>{% endfor %}{% endmacro -%}"
         "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}{{ calls(m) }}</>\n{% endfor %}"
         "{% if add_generation_prompt %}<assistant>{% endif %}")
EDIT = {"name": "edit", "description": "Replaces a line of a file; the result is the file.",
        "input_schema": {"type": "object", "properties": {"file": {"enum": ["a.c", "b.c", "c.c"]}, "line": {"type": "integer", "minimum": 1, "maximum": 9},
                                                          "text": {"type": "string", "maxLength": 12}},
                         "required": ["file", "line", "text"], "additionalProperties": False}}
# A call as the template writes it: a model that was trained on the template writes it so.
EDITS = r'<tool_call>\n\{"name": "edit", "arguments": \{"file": "[abc]\.c", "line": [1-9], "text": "[a-z ]{4,12}"\}\}\n</tool_call>'


@pytest.fixture(scope="module")
def coder(quire, tmp_path_factory):
    """The small built-in model with room for a long conversation."""
    path = tmp_path_factory.mktemp("coder") / "model"
    shutil.copytree("models/builtin-small-hf", path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 65536}))
    (path / "chat_template.jinja").write_text(CODER)
    s = Server(str(path), "--api-key", KEY, "--served-model-name", "builtin", "--json-whitespace", "compact")
    yield s
    assert s.stop() == 0


def test_a_coding_assistant_computes_new_tokens_only(coder):
    """30 turns, in which files are edited through a tool: each prompt finds all of the one before it, and the answer, in the cache."""
    lines = " ".join(f"int value_{i} = {i * 7919 % 1000}; /* the value of {i} */\n" for i in range(58))
    files = {name: lines.replace("value", name[0]).splitlines() for name in ("a.c", "b.c", "c.c")}
    talk = [{"role": "user", "content": [{"type": "text", "text": "Edit the files.", "cache_control": {"type": "ephemeral"}}]}]
    before, computed, edits = 0, [], 0
    with anthropic.Anthropic(base_url=coder.url, api_key=KEY, max_retries=0) as client:
        for turn in range(30):
            fields = dict(model="builtin", max_tokens=120, system="You edit files.", tools=[EDIT], messages=talk,
                          extra_body={"seed": turn, "regex": EDITS})
            if turn % 2:
                with client.messages.stream(**fields) as stream:
                    message = stream.get_final_message()
            else:
                message = client.messages.create(**fields)
            [call] = [b for b in message.content if b.type == "tool_use"]
            assert message.stop_reason == "tool_use"
            files[call.input["file"]][call.input["line"]] = call.input["text"]
            edits += 1
            usage = message.usage
            total = usage.input_tokens + usage.cache_read_input_tokens
            computed.append((before, usage.cache_read_input_tokens, total))
            before = total + usage.output_tokens
            result = {"type": "tool_result", "tool_use_id": call.id, "content": "\n".join(files[call.input["file"]]), "cache_control": {"type": "ephemeral"}}
            talk += [{"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    assert edits == 30 and before > 40000, before
    for turn, (earlier, reused, total) in enumerate(computed[1:], 1):
        assert reused >= 0.99 * earlier and reused >= earlier - 2, (turn, earlier, reused, total)  # the last token ends the answer; that before it was not computed
