"""Tool calls and reasoning in chats: what the model writes is forced by a regex, so that the answers are known."""
import http.client
import json
import re

import openai
import pytest

from conftest import KEY, Server
from marked_model import with_marks

# The prompt ends in a closed block of reasoning: a regex then binds the answer from its first token, reasoning and all.
TEMPLATE = ("{# <tool_call> <think> #}{% if tools %}tools: {% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}"
            "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments }})"
            "{% endfor %}\n{% endfor %}assistant:{% if not free %}<think></think>{% endif %}")
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
USER = [{"role": "user", "content": "What is the weather in Rome?"}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": [1, 2]}}\n</tool_call>'
SECOND = '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>'
ARGUMENTS = {"city": "Rome", "days": [1, 2]}


@pytest.fixture(scope="module")
def talker(quire, tmp_path_factory):
    path = tmp_path_factory.mktemp("tools") / "template.jinja"
    path.write_text(TEMPLATE)
    s = Server("builtin", "--api-key", KEY, "--chat-template", str(path), "--enable-auto-tool-choice")
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def client(talker):
    with openai.OpenAI(base_url=talker.url + "/v1", api_key=KEY, max_retries=0) as c:
        yield c


def ask(client, text, **fields):
    """The answer of a model that writes this text, whole."""
    extra = {"structured_outputs": {"regex": re.escape(text)}, **fields.pop("extra_body", {})}
    fields = {"max_tokens": 300, "temperature": 0, **fields}
    return client.chat.completions.create(model="builtin", messages=USER, extra_body=extra, **fields)


def joined(chunks, n=1):
    """Of each choice: content, reasoning, calls by index, finish reason; what only the first chunk of a call may have is checked."""
    found = [{"content": "", "reasoning": "", "reasoning_content": "", "calls": {}, "finish": None} for _ in range(n)]
    for chunk in chunks:
        for choice in chunk.choices:
            mine, delta = found[choice.index], choice.delta.model_dump()
            for name in ("content", "reasoning", "reasoning_content"):
                mine[name] += delta.get(name) or ""
            for call in delta.get("tool_calls") or []:
                if call["index"] not in mine["calls"]:
                    assert call["index"] == len(mine["calls"]) and call["type"] == "function" and call["id"] and call["function"]["name"]
                    mine["calls"][call["index"]] = {"id": call["id"], "name": call["function"]["name"], "arguments": ""}
                else:
                    assert call["id"] is None and call["function"]["name"] is None
                mine["calls"][call["index"]]["arguments"] += call["function"]["arguments"]
            mine["finish"] = choice.finish_reason or mine["finish"]
    return found


def whole(answer):
    found = []
    for choice in answer.choices:
        message = choice.message.model_dump()
        calls = {i: {"id": c["id"], "name": c["function"]["name"], "arguments": c["function"]["arguments"]}
                 for i, c in enumerate(message.get("tool_calls") or [])}
        found.append({"content": message["content"] or "", "reasoning": message.get("reasoning") or "",
                      "reasoning_content": message.get("reasoning_content") or "", "calls": calls, "finish": choice.finish_reason})
    return found


def without_ids(found):
    return [{**f, "calls": {i: (c["name"], c["arguments"]) for i, c in f["calls"].items()}} for f in found]


def both(client, text, **fields):
    """The choices of the whole answer, which the streamed one equals."""
    n = fields.get("n", 1)
    streamed = joined(ask(client, text, stream=True, **fields), n)
    found = whole(ask(client, text, **fields))
    assert without_ids(streamed) == without_ids(found)
    return found


def test_a_call_is_returned_as_one(client):
    [found] = both(client, CALL, tools=[TOOL])
    assert found["content"] == "" and found["reasoning"] == "" and found["finish"] == "tool_calls"
    assert found["calls"][0]["name"] == "get_weather" and json.loads(found["calls"][0]["arguments"]) == ARGUMENTS


def test_reasoning_content_and_calls_stand_apart(client):
    [found] = both(client, f"<think>Rome, I see.</think>\n\nLet me look.\n{CALL}\n{SECOND}", tools=[TOOL], tool_choice="auto")
    assert found["reasoning"] == found["reasoning_content"] == "Rome, I see."
    assert found["content"].strip() == "Let me look." and found["finish"] == "tool_calls"
    assert [c["name"] for c in found["calls"].values()] == ["get_weather", "other"]
    assert len({c["id"] for c in found["calls"].values()}) == 2


def test_the_message_of_a_call_has_null_for_content_and_none_without_calls_has_calls(client):
    message = ask(client, CALL, tools=[TOOL]).choices[0].message
    assert message.content is None and len(message.tool_calls) == 1
    message = ask(client, "Just words.", tools=[TOOL]).choices[0].message
    assert message.content == "Just words." and message.tool_calls is None


def test_an_echo_stands_before_an_answer_that_is_reasoning_alone(talker):
    fields = {"messages": [*USER, {"role": "assistant", "content": "It is "}], "add_generation_prompt": False, "continue_final_message": True, "echo": True,
              "temperature": 0, "max_tokens": 300, "structured_outputs": {"regex": "<think>Hm.</think>"}}
    message = json.loads(talker.ask("POST", "/v1/chat/completions", fields)[2])["choices"][0]["message"]
    events = [e for e in talker.ask("POST", "/v1/chat/completions", {**fields, "stream": True})[2].split("\n\n") if e.startswith("data: {")]
    deltas = [json.loads(e.removeprefix("data: "))["choices"][0]["delta"] for e in events]
    assert message["reasoning"] and message["content"] == "It is " == "".join(d.get("content") or "" for d in deltas)


@pytest.mark.parametrize("fields", [{}, {"tools": [TOOL], "tool_choice": "none"}, {"tools": []}])
def test_without_tools_the_text_of_a_call_is_content(client, fields):
    [found] = both(client, CALL, **fields)
    assert found["content"] == CALL and found["calls"] == {} and found["finish"] == "stop"


def test_reasoning_is_left_out_where_it_is_not_wanted(client):
    [found] = both(client, "<think>Hm.</think>Yes.", extra_body={"include_reasoning": False})
    assert found["content"] == "Yes." and found["reasoning"] == found["reasoning_content"] == ""


def test_only_the_first_of_parallel_calls_where_one_is_wanted(client):
    [found] = both(client, f"{CALL}\n{SECOND}", tools=[TOOL], parallel_tool_calls=False)
    assert [c["name"] for c in found["calls"].values()] == ["get_weather"] and found["finish"] == "tool_calls"


def test_no_call_comes_twice_where_one_is_required(client):
    switch = {"type": "function", "function": {"name": "switch", "parameters": {
        "type": "object", "properties": {"to": {"enum": ["on", "off"]}}, "required": ["to"], "additionalProperties": False}}}
    fields = {"model": "builtin", "messages": USER, "tools": [switch], "tool_choice": "required", "n": 4, "seed": 5, "temperature": 1,
              "max_tokens": 400, "extra_body": {"min_tokens": 400}}  # the model cannot end its answer: it calls on and on
    found = whole(client.chat.completions.create(**fields))
    assert without_ids(joined(client.chat.completions.create(**fields, stream=True), 4)) == without_ids(found)
    for f in found:
        calls = [json.loads(c["arguments"])["to"] for c in f["calls"].values()]
        assert f["finish"] == "tool_calls" and f["content"] == "" and sorted(calls) in (["on"], ["off"], ["off", "on"])
    assert any(len(f["calls"]) == 2 for f in found)


def test_an_answer_has_no_more_calls_than_are_allowed(client):
    for most in (1, 2, 3):
        [found] = both(client, f"Yes. {CALL}\n{SECOND}\n{CALL}", tools=[TOOL], extra_body={"max_tool_calls": most})
        assert [c["name"] for c in found["calls"].values()] == ["get_weather", "other", "get_weather"][:most]
        assert found["finish"] == "tool_calls" and found["content"].strip() == "Yes."


def test_every_choice_is_parsed_alone(client):
    found = both(client, f"<think>a</think>{CALL}", tools=[TOOL], n=3)
    assert [f["finish"] for f in found] == ["tool_calls"] * 3 and [f["reasoning"] for f in found] == ["a"] * 3
    assert len({f["calls"][0]["id"] for f in whole(ask(client, CALL, tools=[TOOL], n=3))}) == 3


def test_an_answer_that_its_length_cuts_off_says_so(client):
    [found] = both(client, f"Yes. {CALL}", tools=[TOOL], max_tokens=20)
    assert found["finish"] == "length"
    [found] = both(client, "<think>a long thought that does not end", max_tokens=10)
    assert found["finish"] == "length" and found["reasoning"] and found["content"] == ""


def test_a_stop_string_ends_the_answer_and_its_parts(client):
    [found] = both(client, f"<think>a</think>one two three {CALL}", tools=[TOOL], stop=["two"])
    assert found["content"].strip() == "one" and found["calls"] == {} and found["finish"] == "stop"
    [found] = both(client, f"one two three {CALL}", tools=[TOOL], stop=["two"], extra_body={"include_stop_str_in_output": True})
    assert found["content"] == "one two"


NARROW = {"type": "function", "function": {"name": "paint", "parameters": {
    "type": "object", "properties": {"color": {"enum": ["red", "green"]}, "times": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["color", "times"], "additionalProperties": False}}}


def forced(client, tool_choice, **fields):
    fields = {"model": "builtin", "messages": USER, "tools": [TOOL, NARROW], "tool_choice": tool_choice, "max_tokens": 400, "seed": 3, **fields}
    found = whole(client.chat.completions.create(**fields))
    assert without_ids(joined(client.chat.completions.create(stream=True, **fields), fields.get("n", 1))) == without_ids(found)
    return found


def test_a_named_function_is_called_with_arguments_of_its_schema(client):
    for found in forced(client, {"type": "function", "function": {"name": "paint"}}, n=4):
        assert found["content"] == "" and found["finish"] == "stop" and [c["name"] for c in found["calls"].values()] == ["paint"]
        arguments = json.loads(found["calls"][0]["arguments"])
        assert arguments["color"] in ("red", "green") and 1 <= arguments["times"] <= 9 and len(arguments) == 2


def test_a_required_call_is_one_of_the_tools(client):
    other = {"type": "function", "function": {**NARROW["function"], "name": "brush"}}
    for found in forced(client, "required", n=4, tools=[NARROW, other], parallel_tool_calls=False):
        assert found["content"] == "" and found["finish"] == "tool_calls" and len(found["calls"]) == 1
        assert found["calls"][0]["name"] in ("paint", "brush")
        assert json.loads(found["calls"][0]["arguments"])["color"] in ("red", "green")
    for found in forced(client, "required", tools=[NARROW], n=2):
        assert found["calls"] and {c["name"] for c in found["calls"].values()} == {"paint"}


def test_references_in_a_tools_schema_are_to_itself(client):
    def tool(name, value):
        definitions = {"Kind": {"enum": [value]}}
        parameters = {"properties": {"kind": {"$ref": "#/$defs/Kind"}}, "required": ["kind"], "additionalProperties": False, "$defs": definitions}
        return {"type": "function", "function": {"name": name, "parameters": parameters}}
    for name, value in (("first", "x"), ("second", "y")):
        choice = {"type": "function", "function": {"name": name}}
        [found] = forced(client, choice, tools=[tool("first", "x"), tool("second", "y")])
        assert json.loads(found["calls"][0]["arguments"]) == {"kind": value}
    for found in forced(client, "required", tools=[tool("first", "x"), tool("second", "y")], n=4, parallel_tool_calls=False):
        call = found["calls"][0]
        assert json.loads(call["arguments"]) == {"kind": {"first": "x", "second": "y"}[call["name"]]}


def test_a_forced_call_under_a_schema_that_cannot_be_enforced_is_refused(client):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}}}
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="builtin", messages=USER, tools=[tool], tool_choice="required")
    assert refused.value.param == "tool_choice" and 'the parameters of tools[0]: $ref at "/properties/a"' in refused.value.message
    with pytest.raises(openai.BadRequestError) as refused:
        choice = {"type": "function", "function": {"name": "f"}}
        client.chat.completions.create(model="builtin", messages=USER, tools=[{"type": "function", "function": {"name": "g"}}, tool], tool_choice=choice)
    assert 'the parameters of tools[1]: $ref at "/properties/a"' in refused.value.message


CUSTOM = {"type": "custom", "custom": {"name": "shell", "description": "d", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": '(ls|cat) "[a-z]{2,4}"'}}}}


def raw(talker, **body):
    """The chunks of a stream, or the whole answer."""
    status, _, text = talker.ask("POST", "/v1/chat/completions", {"messages": USER, "max_tokens": 300, "temperature": 0, **body})
    assert status == 200, text
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")] if body.get("stream") else json.loads(text)


def test_a_custom_tool_is_called_with_its_text(talker):
    choice = {"type": "custom", "custom": {"name": "shell"}}
    [call] = raw(talker, tools=[TOOL, CUSTOM], tool_choice=choice, seed=4, temperature=1)["choices"][0]["message"]["tool_calls"]
    assert call["type"] == "custom" and call["id"] and call["custom"]["name"] == "shell" and "function" not in call
    assert re.fullmatch('(ls|cat) "[a-z]{2,4}"', call["custom"]["input"])
    written = '<tool_call>\n{"name": "shell", "arguments": {"input": "ls \\"\\u00e9\\n"}}\n</tool_call>'
    for tools in ([CUSTOM, TOOL], [{"type": "custom", "custom": {"name": "shell"}}]):
        fields = {"tools": tools, "structured_outputs": {"regex": re.escape(written)}}
        answer = raw(talker, **fields)["choices"][0]
        assert answer["message"]["tool_calls"][0]["custom"] == {"name": "shell", "input": 'ls "\u00e9\n'} and answer["finish_reason"] == "tool_calls"
        deltas = [d for chunk in raw(talker, stream=True, **fields) for c in chunk["choices"] for d in c["delta"].get("tool_calls", [])]
        assert deltas[0]["type"] == "custom" and deltas[0]["custom"]["name"] == "shell" and all("name" not in d["custom"] for d in deltas[1:])
        assert "".join(d["custom"]["input"] for d in deltas) == 'ls "\u00e9\n'


LARK = {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: expr\nexpr: TERM | "(" expr OP expr ")"\nTERM: /[0-9]{1,3}/ | "\\"" /[a-z]{1,4}/ "\\""\nOP: "+" | "<"\n'}}
SUM = r'(\d{1,3}|"[a-z]{1,4}"|\(|\)|\+|<)+'


def is_sum(text):
    """Whether it is of the grammar above: taken apart from the inside."""
    assert re.fullmatch(SUM, text), text
    while "(" in text:
        shorter = re.sub(r'\((\d{1,3}|"[a-z]{1,4}")[+<](\d{1,3}|"[a-z]{1,4}")\)', "1", text)
        assert shorter != text, text
        text = shorter
    return re.fullmatch(r'\d{1,3}|"[a-z]{1,4}"', text) is not None


def test_a_custom_tool_s_text_obeys_its_lark_grammar(talker):
    for form in (LARK, {"type": "grammar", **LARK["grammar"]}):
        tool = {"type": "custom", "custom": {"name": "sum", "format": form}}
        for choice in ("required", {"type": "custom", "custom": {"name": "sum"}}):
            answer = raw(talker, tools=[tool], tool_choice=choice, seed=7, temperature=1, n=6, parallel_tool_calls=False)
            inputs = [c["message"]["tool_calls"][0]["custom"]["input"] for c in answer["choices"] if c["finish_reason"] != "length"]
            assert len(inputs) >= 3 and all(is_sum(text) for text in inputs)
            chunks = raw(talker, tools=[tool], tool_choice=choice, seed=7, temperature=1, parallel_tool_calls=False, stream=True)
            assert "".join(d["custom"]["input"] for chunk in chunks for c in chunk["choices"] for d in c["delta"].get("tool_calls", [])) == answer["choices"][0]["message"]["tool_calls"][0]["custom"]["input"]


@pytest.mark.parametrize("syntax, definition, reason", [("lark", "start: nowhere\n", "nowhere"), ("lark", "start: (", "line 1"), ("regex", "a)|(b", ")"), ("regex", "((a{1,90}){1,90}){1,90}", "")])
def test_a_custom_tool_s_grammar_that_cannot_be_enforced_is_refused(talker, syntax, definition, reason):
    tool = {"type": "custom", "custom": {"name": "c", "format": {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}}}
    for choice in ("auto", "required"):
        status, _, text = talker.ask("POST", "/v1/chat/completions", {"messages": USER, "tools": [tool], "tool_choice": choice})
        assert status == 400 and reason in json.loads(text)["error"]["message"] and "tools[0].custom.format.grammar.definition" in text


def test_only_allowed_tools_are_called(client, talker):
    other = {"type": "function", "function": {**NARROW["function"], "name": "brush"}}
    for inside in ({"allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "brush"}}]}}, {"mode": "required", "tools": [{"type": "function", "name": "brush"}]}):
        for found in forced(client, {"type": "allowed_tools", **inside}, tools=[NARROW, other], n=4, parallel_tool_calls=False):
            assert [c["name"] for c in found["calls"].values()] == ["brush"]
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "brush"}}]}}
    seen = raw(talker, tools=[NARROW, other], tool_choice=allowed)["usage"]["prompt_tokens"]
    assert seen == raw(talker, tools=[NARROW, other])["usage"]["prompt_tokens"]  # the model sees all of them


def test_old_functions_have_old_calls(talker):
    fields = {"functions": [TOOL["function"]], "structured_outputs": {"regex": re.escape(CALL + SECOND)}}
    answer = raw(talker, **fields)["choices"][0]
    assert answer["finish_reason"] == "function_call" and "tool_calls" not in answer["message"]
    assert answer["message"]["function_call"]["name"] == "get_weather" and json.loads(answer["message"]["function_call"]["arguments"]) == ARGUMENTS
    deltas = [c["delta"]["function_call"] for chunk in raw(talker, stream=True, **fields) for c in chunk["choices"] if "function_call" in c["delta"]]
    assert deltas[0]["name"] == "get_weather" and all("name" not in d for d in deltas[1:])
    assert json.loads("".join(d["arguments"] for d in deltas)) == ARGUMENTS
    named = raw(talker, functions=[TOOL["function"], NARROW["function"]], function_call={"name": "paint"}, seed=2, temperature=1)["choices"][0]
    assert named["message"]["function_call"]["name"] == "paint" and json.loads(named["message"]["function_call"]["arguments"])["color"] in ("red", "green")
    none = raw(talker, functions=[TOOL["function"]], function_call="none", structured_outputs=fields["structured_outputs"])["choices"][0]["message"]
    assert none["function_call"] is None and none["content"] == CALL + SECOND


def test_half_a_mark_is_text_in_the_end(client):
    [found] = both(client, "See <tool_ca", tools=[TOOL])
    assert found["content"] == "See <tool_ca" and found["finish"] == "stop"


def test_logprobs_and_ids_are_of_all_tokens(client):
    answer = ask(client, CALL, tools=[TOOL], logprobs=True, extra_body={"return_token_ids": True}).choices[0]
    assert len(answer.logprobs.content) == len(answer.token_ids)
    assert "".join(t.token for t in answer.logprobs.content).startswith("<tool_call>")
    chunks = list(ask(client, CALL, tools=[TOOL], logprobs=True, stream=True))
    assert sum(len(c.choices[0].logprobs.content) for c in chunks if c.choices and c.choices[0].logprobs) == len(answer.logprobs.content)


def test_tools_and_earlier_calls_reach_the_template(client):
    tokens = lambda **fields: ask(client, "x", **fields).usage.prompt_tokens
    assert tokens(tools=[TOOL]) > tokens()
    call = {"id": "abc", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    history = USER + [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "abc", "content": "Sun."}]
    answer = client.chat.completions.create(model="builtin", messages=history, tools=[TOOL], max_tokens=2)
    assert answer.usage.prompt_tokens > tokens(tools=[TOOL])


@pytest.mark.parametrize("fields,param,says", [
    ({"tools": [{"type": "web"}]}, "tools", "type"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools", "name"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 3}}]}, "tools", "parameters"),
    ({"tools": [TOOL], "tool_choice": "some"}, "tool_choice", "auto"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice", "nope"),
    ({"tool_choice": "required"}, "tool_choice", "no tools"),
])
def test_what_is_wrong_with_tools_is_said(client, fields, param, says):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="builtin", messages=USER, **fields)
    assert refused.value.param == param and says in refused.value.message


@pytest.mark.parametrize("verb", ["rollback", "steer", "fork"])
def test_an_answer_with_tools_is_not_branched(talker, verb):
    body = {"messages": USER, "tools": [TOOL], "max_tokens": 1000, "ignore_eos": True, "stream": True}
    connection = http.client.HTTPConnection(*talker.address, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
    line = connection.getresponse().readline().decode()
    status, _, text = talker.ask("POST", f"/v1/streams/{json.loads(line[6:])['id']}/{verb}", {"position": 100, **({"text": "x"} if verb == "steer" else {})})
    connection.close()
    assert status == 400 and json.loads(text)["error"]["param"] == "tools", text


def test_reasoning_goes_on_behind_a_rollback(talker):
    """What is thought again is reasoning again, as in an answer that was not rolled back."""
    text = "<think>" + "word " * 300 + "</think>Done."  # long enough to be there when the command comes
    body = {"messages": USER, "max_tokens": 1500, "stream": True, "return_token_ids": True, "structured_outputs": {"regex": re.escape(text)}}
    connection = http.client.HTTPConnection(*talker.address, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
    answer, content, reasoning, n, n_prompt, told = connection.getresponse(), "", "", 0, 0, None
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        if "quire" in chunk:
            reasoning = chunk["quire"]["text"].removeprefix("<think>")
        n_prompt = len(chunk.get("prompt_token_ids") or []) or n_prompt
        for choice in chunk["choices"]:
            n += len(choice.get("token_ids") or [])
            content += choice["delta"].get("content") or ""
            reasoning += choice["delta"].get("reasoning") or ""
        if told is None and n >= 12:
            told = talker.ask("POST", f"/v1/streams/{chunk['id']}/rollback", {"position": n_prompt + 8})
            assert told[0] == 200, told[2]
    connection.close()
    assert told is not None and content == "Done." and reasoning.split() == ["word"] * 300


MARKS = {"<think>": True, "</think>": True, "<tool_call>": False, "</tool_call>": False}  # special ones, and a user's


@pytest.fixture(scope="module")
def marked(quire, tmp_path_factory):
    """The built-in model with marks as tokens, in place of its last four."""
    path, first = with_marks(tmp_path_factory.mktemp("marked") / "model", MARKS, TEMPLATE)
    s = Server(str(path), "--api-key", KEY, "--served-model-name", "builtin")
    with openai.OpenAI(base_url=s.url + "/v1", api_key=KEY, max_retries=0) as c:
        c.first = first
        yield c
    assert s.stop() == 0


def test_a_mark_that_is_a_token_counts_as_a_token_alone(marked):
    bias = {str(marked.first + 2): 100, str(marked.first + 3): 100}  # the model takes the tokens wherever it may write the marks
    [found] = both(marked, f"Well: {CALL}", tools=[TOOL], logit_bias=bias)
    assert found["content"].strip() == "Well:" and json.loads(found["calls"][0]["arguments"]) == ARGUMENTS
    never = {i: -100 for i in bias}
    [found] = both(marked, CALL, tools=[TOOL], logit_bias=never)
    assert found["content"] == CALL and found["calls"] == {}
    [found] = both(marked, "<think>a</think>b")
    assert found["content"] == "<think>a</think>b" and found["reasoning"] == ""


def test_a_mark_that_a_call_needs_cannot_be_taken_from_it(marked):
    opening, closing = marked.first + 2, marked.first + 3
    for extra, param in (({"bad_words": ["</tool_call>"]}, "bad_words"), ({"stop_token_ids": [opening]}, "stop_token_ids"),
                         ({"allowed_token_ids": [opening, *range(300)]}, "allowed_token_ids")):
        for choice in ("required", "auto"):
            with pytest.raises(openai.BadRequestError) as refused:
                marked.chat.completions.create(model="builtin", messages=USER, tools=[TOOL], tool_choice=choice, extra_body=extra)
            assert refused.value.param == param and "tool call" in refused.value.message
    # under auto a banned opening mark means that no call comes; the closing one may end the answer
    fields = {"model": "builtin", "messages": USER, "tools": [TOOL], "max_tokens": 8, "seed": 3}
    marked.chat.completions.create(**fields, extra_body={"bad_words": ["<tool_call>", "</tool_call>"]})
    marked.chat.completions.create(**fields, tool_choice="required", extra_body={"stop_token_ids": [closing]})


def test_a_special_token_that_is_a_mark_begins_and_ends_the_reasoning(marked):
    opening, closing, word, other = marked.first, marked.first + 1, 1000, 1001
    for ids, has_reasoning, has_content in (([opening, word, closing, other], True, True), ([opening, word], True, False),
                                            ([opening, closing, word], False, True), ([word, opening], False, True)):
        # each token once, the one with the larger bias first
        extra = {"allowed_token_ids": ids, "no_repeat_ngram_size": 1, "return_token_ids": True, "chat_template_kwargs": {"free": True}}
        fields = {"max_tokens": len(ids), "temperature": 0, "model": "builtin", "messages": USER, "extra_body": extra,
                  "logit_bias": {str(token): 100 - 50 * i for i, token in enumerate(ids)}}
        answer = marked.chat.completions.create(**fields)
        [found] = whole(answer)
        assert answer.choices[0].token_ids == ids
        assert without_ids(joined(marked.chat.completions.create(stream=True, **fields))) == without_ids([found])
        assert "<" not in found["content"] + found["reasoning"]
        assert (bool(found["reasoning"]), bool(found["content"])) == (has_reasoning, has_content)


def test_a_stop_string_behind_a_mark_that_is_a_token_ends_the_answer(marked):
    bias = {str(marked.first + 2): 100, str(marked.first + 3): 100}
    [found] = both(marked, f"one {CALL} two", tools=[TOOL], logit_bias=bias, stop=["wo"])
    assert found["finish"] == "tool_calls" and found["content"].split() == ["one", "t"] and len(found["calls"]) == 1
    [found] = both(marked, f"one {CALL} two", tools=[TOOL], logit_bias=bias, stop=["get_"])
    assert found["finish"] == "stop" and found["content"] == 'one <tool_call>\n{"name": "' and found["calls"] == {}
    [found] = both(marked, f"one {CALL} two", tools=[TOOL], logit_bias=bias, stop=["one \n"])
    assert found["finish"] == "tool_calls"  # none reaches across a mark


def test_a_token_that_a_user_defined_is_text_where_it_is_no_mark(marked):
    bias = {str(marked.first + 2): 100, str(marked.first + 3): 100}
    [found] = both(marked, f"one {CALL} two", logit_bias=bias)
    assert found["content"] == f"one {CALL} two"


def test_formats_are_said_at_start(talker):
    assert any("tool calls are hermes, reasoning is qwen3" in line for line in talker.said)


def test_a_named_format_goes_before_the_templates(quire, tmp_path):
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    s = Server("builtin", "--api-key", KEY, "--chat-template", str(tmp_path / "template.jinja"), "--tool-call-parser", "pythonic", "--reasoning-parser", "none")
    try:
        with openai.OpenAI(base_url=s.url + "/v1", api_key=KEY, max_retries=0) as c:
            [found] = both(c, '[get_weather(city="Rome")]', tools=[TOOL])
            assert json.loads(found["calls"][0]["arguments"]) == {"city": "Rome"}
            assert both(c, "<think>a</think>b")[0]["content"] == "<think>a</think>b"
    finally:
        assert s.stop() == 0


def test_no_request_may_have_more_calls_than_the_server(quire, tmp_path):
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    s = Server("builtin", "--api-key", KEY, "--chat-template", str(tmp_path / "template.jinja"), "--max-tool-calls", "2")
    try:
        with openai.OpenAI(base_url=s.url + "/v1", api_key=KEY, max_retries=0) as c:
            for fields, n in (({}, 2), ({"max_tool_calls": 3}, 2), ({"max_tool_calls": 1}, 1)):
                [found] = both(c, f"{CALL}\n{SECOND}\n{CALL}", tools=[TOOL], extra_body=fields)
                assert len(found["calls"]) == n and found["finish"] == "tool_calls"
    finally:
        assert s.stop() == 0


@pytest.mark.parametrize("flag", ["--tool-call-parser", "--reasoning-parser"])
def test_an_unknown_format_is_refused_with_those_that_there_are(quire, flag):
    with pytest.raises(RuntimeError, match="hermes" if flag.startswith("--tool") else "deepseek_r1"):
        Server("builtin", flag, "nonsense")
