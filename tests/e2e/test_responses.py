"""OpenAI's Responses API by its own package: whole and streamed responses, tools, the store, the background. What the model writes is forced by a regex
where it matters, so that the answers are known."""
import json
import re

import openai
import pydantic
import pytest

from conftest import KEY, Server

# A call is rendered as the model writes it, so that a conversation's prompt continues the text before it.
TEMPLATE = ("{# <tool_call> <think> #}{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}<think></think>{% endif %}{{ m.content or '' }}"
            "{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>"
            "{% endfor %}\n{% endfor %}assistant: {% if not free %}<think></think>{% endif %}")
TOOL = {"type": "function", "name": "edit_file", "description": "writes a file", "strict": False, "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}}
CUSTOM = {"type": "custom", "name": "shell", "description": "runs a line", "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "ls " /[a-z]{1,5}/'}}
LONG = {"max_output_tokens": 4000, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def site(quire, tmp_path_factory):
    folder = tmp_path_factory.mktemp("responses")
    (folder / "template.jinja").write_text(TEMPLATE)
    (folder / "keys").write_text("ann:key-ann\nbob:key-bob\n")
    s = Server("builtin", "--api-key", KEY, "--api-key-file", str(folder / "keys"), "--chat-template", str(folder / "template.jinja"), "--server-threads", "2")
    yield s
    assert s.stop() == 0


def client_of(site, key=KEY):
    return openai.OpenAI(base_url=site.url + "/v1", api_key=key, max_retries=0)


@pytest.fixture(scope="module")
def client(site):
    with client_of(site) as c:
        yield c


def forced(text):
    return {"structured_outputs": {"regex": re.escape(text)}}


def call_text(name, arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def create(client, **fields):
    extra = fields.pop("extra_body", {})
    return client.responses.create(**{"model": "builtin", "input": "Say it.", "temperature": 0, "max_output_tokens": 400, **fields}, extra_body=extra)


def without_ids(value):
    if isinstance(value, list):
        return [without_ids(v) for v in value]
    if isinstance(value, dict):
        return {k: without_ids(v) for k, v in value.items() if k not in ("id", "item_id", "call_id", "created_at", "completed_at", "cached_tokens")}
    return value


def streamed(client, **fields):
    """(the types of the events, their number, the last response): every event has its number, and belongs where it stands."""
    events = list(create(client, stream=True, **fields))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    texts = {}
    for e in events:
        if e.type.endswith(".delta"):
            texts[e.item_id] = texts.get(e.item_id, "") + e.delta
        elif e.type.endswith(("text.done", "arguments.done", "input.done")):
            done = getattr(e, "text", None) or getattr(e, "arguments", None) or getattr(e, "input", None) or ""
            assert done == texts.get(e.item_id, "")
        elif e.type == "response.output_item.done":
            assert events[-1].response.output[e.output_index] == e.item
    return [e.type for e in events], events[-1].response


def collapsed(types):
    """Runs of deltas as one."""
    return [t for i, t in enumerate(types) if i == 0 or t != types[i - 1] or not t.endswith(".delta")]


HEAD = ["response.created", "response.in_progress"]
MESSAGE = ["response.output_item.added", "response.content_part.added", "response.output_text.delta", "response.output_text.done",
           "response.content_part.done", "response.output_item.done"]
REASONING = [t.replace("output_text", "reasoning_text") for t in MESSAGE]
CALL = ["response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_item.done"]


def test_a_whole_response_has_every_member(client):
    r = create(client, instructions="Be kind.", extra_body=forced("Good day."), metadata={"a": "b"})
    assert r.object == "response" and r.status == "completed" and r.error is None and r.incomplete_details is None and r.completed_at >= r.created_at
    assert r.output_text == "Good day." and r.instructions == "Be kind." and r.metadata == {"a": "b"} and r.id.startswith("resp_")
    [message] = r.output
    assert (message.type, message.role, message.status, message.content[0].annotations) == ("message", "assistant", "completed", [])
    assert (r.tools, r.tool_choice, r.parallel_tool_calls, r.temperature, r.top_p, r.truncation) == ([], "auto", True, 0, 1, "disabled")
    usage = r.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens and usage.output_tokens > 0
    assert usage.output_tokens_details.reasoning_tokens == 0 and usage.input_tokens_details.cached_tokens <= usage.input_tokens
    cut = create(client, max_output_tokens=3)
    assert (cut.status, cut.incomplete_details.reason, cut.output[0].status) == ("incomplete", "max_output_tokens", "incomplete")


def test_a_stream_has_its_events_in_order(client):
    fields = {"extra_body": forced("Good day.")}
    types, last = streamed(client, **fields)
    assert collapsed(types) == HEAD + MESSAGE + ["response.completed"]
    assert without_ids(last.to_dict()) == without_ids(create(client, **fields).to_dict())
    assert client.responses.retrieve(last.id).to_dict() == last.to_dict()
    types, last = streamed(client, max_output_tokens=2)
    assert types[-1] == "response.incomplete" and last.output[0].status == "incomplete"


def test_reasoning_is_an_item_of_its_own(client):
    types, last = streamed(client, extra_body=forced("<think>hm hm</think>Yes."))
    assert [o.type for o in last.output] == ["reasoning", "message"]
    assert collapsed(types) == HEAD + REASONING + MESSAGE + ["response.completed"]
    assert last.output[0].content[0].text == "hm hm" and last.output[0].summary == [] and last.output_text == "Yes."
    assert 0 < last.usage.output_tokens_details.reasoning_tokens < last.usage.output_tokens
    again = create(client, input=[{"role": "user", "content": "q"}, *[o.to_dict() for o in last.output], {"role": "user", "content": "again"}])
    assert again.status in ("completed", "incomplete")


def test_a_function_is_called_and_its_output_sent_back(client):
    text = call_text("edit_file", {"path": "a", "text": "b"})
    fields = {"tools": [TOOL], "extra_body": forced(text)}
    types, last = streamed(client, **fields)
    assert collapsed(types) == HEAD + CALL + ["response.completed"]
    r = create(client, **fields)
    assert without_ids(r.to_dict()) == without_ids(last.to_dict())
    [call] = r.output
    assert (call.type, call.name, call.status) == ("function_call", "edit_file", "completed") and json.loads(call.arguments) == {"path": "a", "text": "b"}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    chained = create(client, previous_response_id=r.id, input=[output], tools=[TOOL])
    whole = create(client, input=[{"role": "user", "content": "Say it."}, call.to_dict(), output], tools=[TOOL])
    assert without_ids(chained.output[0].to_dict()) == without_ids(whole.output[0].to_dict()) and chained.usage.input_tokens == whole.usage.input_tokens
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, previous_response_id=r.id, input=[{**output, "call_id": "nobody"}])
    assert refused.value.param == "input[0].call_id" and "nobody" in refused.value.message


def test_tools_of_a_namespace_are_called_by_both_names(client):
    spaces = [{"type": "namespace", "name": name, "description": name, "tools": [TOOL, CUSTOM]} for name in ("files", "more.files")]
    text = call_text("more.files.edit_file", {"path": "a", "text": "b"})
    fields = {"tools": [*spaces, TOOL], "extra_body": forced(text)}
    r, (_, last) = create(client, **fields), streamed(client, **fields)
    assert without_ids(r.to_dict()) == without_ids(last.to_dict()) and [t.type for t in r.tools] == ["namespace", "namespace", "function"]
    [call] = r.output
    assert (call.namespace, call.name) == ("more.files", "edit_file")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    chained = create(client, previous_response_id=r.id, input=[output], tools=spaces)
    whole = create(client, input=[{"role": "user", "content": "Say it."}, call.to_dict(), output], tools=spaces)
    assert chained.usage.input_tokens == whole.usage.input_tokens and without_ids(chained.output[0].to_dict()) == without_ids(whole.output[0].to_dict())
    plain = create(client, tools=[*spaces, TOOL], extra_body=forced(call_text("edit_file", {"path": "a", "text": "b"}))).output[0]
    assert (plain.namespace, plain.name) == (None, "edit_file")
    flat = {**TOOL, "name": "files.edit_file"}  # no tool of the namespace, which has others
    whole = create(client, tools=[flat, {**spaces[0], "tools": [CUSTOM]}], extra_body=forced(call_text("files.edit_file", {"path": "a", "text": "b"}))).output[0]
    assert (whole.namespace, whole.name) == (None, "files.edit_file")
    inner = {**spaces[0], "name": "more", "tools": [CUSTOM]}  # another namespace's name begins with its own
    longer = create(client, tools=[spaces[1], inner], extra_body=forced(text)).output[0]
    assert (longer.namespace, longer.name) == ("more.files", "edit_file")


def test_a_custom_tool_is_called_with_text_of_its_grammar(client):
    r = create(client, tools=[CUSTOM], tool_choice={"type": "custom", "name": "shell"})
    [call] = [o for o in r.output if o.type != "reasoning"]
    assert (call.type, call.name) == ("custom_tool_call", "shell") and re.fullmatch("ls [a-z]{1,5}", call.input)
    types, last = streamed(client, tools=[CUSTOM], tool_choice={"type": "custom", "name": "shell"})
    assert "response.custom_tool_call_input.delta" in types and "response.custom_tool_call_input.done" in types
    output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "a.c"}
    assert create(client, previous_response_id=r.id, input=[output], tools=[CUSTOM]).previous_response_id == r.id


class Reading(pydantic.BaseModel):
    level: int
    ok: bool


def test_structured_output_is_parsed(client):
    r = client.responses.parse(model="builtin", input="Read.", text_format=Reading, max_output_tokens=200, temperature=0)
    assert isinstance(r.output_parsed, Reading)
    assert r.text.format.type == "json_schema" and r.text.format.name == "Reading"


def test_logprobs_are_those_of_the_text(client):
    r = create(client, include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=5)
    listed = r.output[0].content[0].logprobs
    assert "".join(p.token for p in listed) == r.output_text and all(len(p.top_logprobs) == 2 for p in listed)


@pytest.mark.parametrize("text", ["if a:\n    return b < c\n\n    pass", "a << b, <thing .<tool_cal <<< end", "é ≤ <ü\n \n ok"])
def test_no_token_of_text_is_missing_where_it_may_begin_a_mark(client, text):
    """Space and what begins like a mark are held back and come with later tokens; each is listed all the same."""
    fields = {"tools": [TOOL], "extra_body": forced(text), "include": ["message.output_text.logprobs"]}
    r, (_, last) = create(client, **fields), streamed(client, **fields)
    for [item] in (r.output, last.output):
        assert item.content[0].text == text
        assert b"".join(bytes(t.bytes) for t in item.content[0].logprobs) == text.encode()


def test_items_stand_in_the_order_in_which_they_came(client):
    """A message after a call is an item after it, streamed or whole; log-probabilities add no item, and list the text's tokens alone."""
    calls = [call_text("edit_file", {"path": path, "text": "b"}) for path in "ac"]
    text = f"<think>hm</think>One, <two.{calls[0]}Three.{calls[1]}"
    for include in ([], ["message.output_text.logprobs"]):
        fields = {"tools": [TOOL], "extra_body": forced(text), "include": include, "max_output_tokens": 500}
        r, (_, last) = create(client, **fields), streamed(client, **fields)
        assert without_ids(r.to_dict()) == without_ids(last.to_dict())
        assert [o.type for o in r.output] == ["reasoning", "message", "function_call", "message", "function_call"]
        parts = [o.content[0] for o in r.output if o.type == "message"]
        assert [p.text for p in parts] == ["One, <two.", "\nThree."]  # a line of its own after a call, which no token wrote
        assert ["".join(t.token for t in p.logprobs) for p in parts] == (["One, <two.", "Three."] if include else ["", ""])
    [call] = create(client, tools=[TOOL], extra_body=forced(calls[0]), include=["message.output_text.logprobs"]).output
    assert call.type == "function_call"


def test_a_conversation_goes_on_from_a_stored_response(client):
    first = create(client, input="My name is Ann.", instructions="Be brief.", extra_body=forced("Hello Ann."))
    second = create(client, input="Who am I?", previous_response_id=first.id)
    whole = create(client, input=[{"role": "user", "content": "My name is Ann."}, {"role": "assistant", "content": "Hello Ann."}, {"role": "user", "content": "Who am I?"}])
    assert second.usage.input_tokens == whole.usage.input_tokens and second.output_text == whole.output_text  # without the instructions
    assert second.previous_response_id == first.id
    client.responses.delete(first.id)  # what continues it keeps its conversation
    third = create(client, input="And now?", previous_response_id=second.id)
    assert third.usage.input_tokens > second.usage.input_tokens + second.usage.output_tokens


def cannot_continue(client, previous):
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, previous_response_id=previous)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id") and previous in refused.value.message


def test_what_is_not_stored_is_not_there(client, site):
    r = create(client, store=False, max_output_tokens=2)
    assert r.to_dict()["store"] is False
    for ask in (lambda: client.responses.retrieve(r.id), lambda: client.responses.delete(r.id), lambda: client.responses.cancel(r.id),
                lambda: client.responses.input_items.list(r.id)):
        with pytest.raises(openai.NotFoundError):
            ask()
    cannot_continue(client, r.id)


def test_a_deleted_response_is_gone(client, site):
    r = create(client, max_output_tokens=2)
    status, _, text = site.ask("DELETE", f"/v1/responses/{r.id}")
    assert (status, json.loads(text)) == (200, {"id": r.id, "object": "response", "deleted": True})
    assert site.ask("GET", f"/v1/responses/{r.id}")[0] == 404 and site.ask("DELETE", f"/v1/responses/{r.id}")[0] == 404


def test_items_of_an_input_are_listed_in_pages(client, site):
    texts = [f"line {i}" for i in range(7)]
    r = create(client, input=[{"role": "user", "content": t} for t in texts], max_output_tokens=2)
    assert [i.content[0].text for i in client.responses.input_items.list(r.id, order="asc")] == texts
    assert [i.content[0].text for i in client.responses.input_items.list(r.id, limit=3)] == texts[::-1]  # page after page
    page = client.responses.input_items.list(r.id, order="asc", limit=2)
    assert page.has_more and (page.first_id, page.last_id) == (page.data[0].id, page.data[1].id)
    rest = client.responses.input_items.list(r.id, order="asc", limit=100, after=page.last_id)
    assert [i.content[0].text for i in rest.data] == texts[2:] and not rest.has_more
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=nobody"):
        status, _, text = site.ask("GET", f"/v1/responses/{r.id}/input_items?{query}")
        assert status == 400 and json.loads(text)["error"]["param"] == query.split("=")[0]


def test_a_stored_response_is_no_stream(client):
    r = create(client, input="line", max_output_tokens=2)
    assert client.responses.retrieve(r.id, stream=False).output_text == r.output_text
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.retrieve(r.id, stream=True)
    assert refused.value.param == "stream"


def test_paths_of_openais_that_are_no_response_are_not_found(client):
    for ask in (client.responses.input_tokens.count, client.responses.compact):
        with pytest.raises(openai.NotFoundError, match="there is no such path"):
            ask(model="story", input="line")


def until(client, response_id, status):
    """Asks until it has that status: each answer is a state that it may have."""
    while True:
        r = client.responses.retrieve(response_id)
        if r.status == status:
            return r
        assert r.status in ("queued", "in_progress"), r.status


def test_a_response_in_the_background_is_polled(client):
    fields = {"extra_body": forced("All done.")}
    begun = create(client, background=True, **fields)
    assert begun.status == "queued" and begun.background and begun.output == [] and begun.usage is None
    r = until(client, begun.id, "completed")
    assert without_ids({**r.to_dict(), "background": False}) == without_ids(create(client, **fields).to_dict())
    assert create(client, input="More", previous_response_id=r.id, max_output_tokens=2).usage.input_tokens > r.usage.input_tokens


def test_a_response_in_the_background_is_cancelled(client, site):
    running = create(client, background=True, **LONG)
    assert client.responses.cancel(running.id).status == "cancelled"
    assert client.responses.cancel(running.id).status == "cancelled" and client.responses.retrieve(running.id).status == "cancelled"
    deleted = create(client, background=True, **LONG)
    client.responses.delete(deleted.id)
    while site.metric("vllm:num_requests_running") + site.metric("vllm:num_requests_waiting") > 0:
        pass
    assert site.ask("GET", f"/v1/responses/{deleted.id}")[0] == 404
    whole = create(client, max_output_tokens=2)
    status, _, text = site.ask("POST", f"/v1/responses/{whole.id}/cancel")
    assert status == 400 and "background" in json.loads(text)["error"]["message"]


def completion_tokens(site, tenant):
    return int(re.search(rf'^quire_tenant_completion_tokens_total{{.*tenant="{tenant}".*}} (\d+)', site.ask("GET", "/metrics", key="root")[2], re.M)[1])


def test_what_runs_in_the_background_is_listed_cancelled_logged_and_counted(quire, tmp_path):
    (tmp_path / "keys").write_text("ann:key-ann\n")
    s = Server("builtin", "--api-key-file", str(tmp_path / "keys"), "--operator-key", "root", "--server-threads", "2", "--log-format", "json")
    with client_of(s, "key-ann") as c:
        while True:  # one may end before it is listed or cancelled
            begun = create(c, background=True, **LONG)
            rows = [r for r in json.loads(s.ask("GET", "/debug/requests", key="root")[2])["data"] if r["id"] == begun.id]
            if rows and s.ask("DELETE", f"/debug/requests/{begun.id}", key="root")[0] == 200:
                break
        row = rows[0]
        assert row["background"] and row["tenant"] == "ann" and row["client"] is None and row["endpoint"] == "/v1/responses" and not row["stream"]
        assert row["state"] in ("preparing", "waiting", "running") and json.loads(s.ask("GET", "/debug/requests", key="root")[2])["data"] == []
        failed = c.responses.retrieve(begun.id)
        assert failed.status == "failed" and failed.to_dict()["completed_at"] is None and "cancelled this request" in failed.error.message and failed.error.code == "server_error"
        before = completion_tokens(s, "ann")
        done = until(c, create(c, background=True, max_output_tokens=3).id, "incomplete")
        assert done.to_dict()["completed_at"] is None
        assert completion_tokens(s, "ann") == before + 3
        given_up = create(c, background=True, **LONG)
        c.responses.cancel(given_up.id)
    assert s.stop() == 0
    lines = [json.loads(line) for line in s.said if line.startswith("{")]
    logged = {line["response"]: line for line in lines if line.get("response")}
    assert (logged[begun.id]["status"], logged[begun.id]["finish_reason"], logged[begun.id]["tenant"]) == (410, "error", "ann")
    assert (logged[done.id]["status"], logged[done.id]["finish_reason"], logged[done.id]["completion_tokens"]) == (200, "length", 3)
    assert logged[done.id]["prompt_tokens"] == done.usage.input_tokens and logged[done.id]["total_ms"] >= logged[done.id]["first_token_ms"]
    assert given_up.id in logged and {line["status"] for line in lines if line.get("id") == logged[done.id]["id"]} == {200}


def test_a_tenant_sees_its_own_responses_alone(site):
    with client_of(site, "key-ann") as ann, client_of(site, "key-bob") as bob:
        r = create(ann, max_output_tokens=2)
        assert ann.responses.retrieve(r.id).id == r.id
        for ask in (lambda: bob.responses.retrieve(r.id), lambda: bob.responses.delete(r.id), lambda: bob.responses.cancel(r.id),
                    lambda: bob.responses.input_items.list(r.id)):
            with pytest.raises(openai.NotFoundError):
                ask()
        cannot_continue(bob, r.id)
        assert ann.responses.retrieve(r.id).id == r.id


def test_bad_requests_are_refused_by_name(site):
    image = [{"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "data:"}]}]
    for body, param in [({}, "input"), ({"input": image}, "input[0].content[1]"), ({"input": "x", "tools": [{"type": "code_interpreter"}]}, "tools"),
                        ({"input": "x", "truncation": "auto"}, "truncation"), ({"input": "x", "background": True, "stream": True}, "background"),
                        ({"input": "x", "max_tokens": 3}, "max_tokens"), ({"input": "x", "temperature": 3}, "temperature")]:
        status, _, text = site.ask("POST", "/v1/responses", body)
        assert status == 400 and json.loads(text)["error"]["param"] == param, text
    status, headers, _ = site.ask("POST", "/v1/responses", {"input": "x", "max_output_tokens": 1, "client_metadata": {}, "frobnicate": 1})
    assert status == 200 and "client_metadata, frobnicate" in headers["warning"]
    for method, path, expected in [("PUT", "/v1/responses/a", 405), ("POST", "/v1/responses/a", 405), ("GET", "/v1/responses/a/cancel", 405),
                                   ("GET", "/v1/responses/a/b", 404), ("GET", "/v1/responses", 405)]:
        assert site.ask(method, path)[0] == expected, path


def test_a_schema_that_cannot_be_enforced_is_refused_by_the_name_text(site):
    form = {"type": "json_schema", "name": "a", "schema": {"type": "foo"}}
    status, _, text = site.ask("POST", "/v1/responses", {"input": "x", "text": {"format": form}})
    assert status == 400 and json.loads(text)["error"]["message"].startswith("text: "), text


def test_a_store_that_is_off_keeps_nothing(quire):
    s = Server("builtin", "--api-key", KEY, "--responses-bytes", "0")
    with client_of(s) as c:
        r = create(c, max_output_tokens=2)
        with pytest.raises(openai.NotFoundError):
            c.responses.retrieve(r.id)
        with pytest.raises(openai.BadRequestError) as refused:
            create(c, background=True)
        assert refused.value.param == "background"
    assert s.stop() == 0


def test_the_background_has_room_for_other_tenants(quire):
    """A tenant may have as many responses there as there is room left for: alone half of it."""
    s = Server("builtin", "--api-key", KEY, "--api-key", "k-other", "--max-connections", "4", "--drain-s", "0.1")
    with client_of(s) as c, openai.OpenAI(base_url=s.url + "/v1", api_key="k-other", max_retries=0) as other:
        with pytest.raises(openai.RateLimitError):
            for _ in range(10000):  # until there are two at once: some end before the next begins
                create(c, background=True, **LONG)
        assert create(other, background=True, **LONG).status == "queued"
        assert create(c, max_output_tokens=2).status == "incomplete"  # what is not in the background is not held up
    assert s.stop() == 0


def test_responses_in_the_background_end_with_the_server(quire):
    s = Server("builtin", "--api-key", KEY, "--drain-s", "0.1")
    with client_of(s) as c:
        for _ in range(3):
            create(c, background=True, **LONG)
    assert s.stop() == 0


def test_a_coding_assistant_computes_only_what_is_new(client, tmp_path):
    """Turns of edits through a tool, each on the response before: all of the prompt and of the answer before is reused."""
    files, previous = {}, None
    tool = {"type": "function", "name": "put", "parameters": {"type": "object", "properties": {"f": {"type": "string"}}}}
    items = [{"role": "user", "content": "Write the numbers to files."}]
    for turn in range(12):
        path = f"f{turn}"
        r = create(client, input=items, tools=[tool], previous_response_id=previous.id if previous else None,
                   extra_body=forced(call_text("put", {"f": path})))
        [call] = r.output
        arguments = json.loads(call.arguments)
        (tmp_path / arguments["f"]).write_text("new")
        files[path] = "new"
        if previous is not None:
            computed = r.usage.input_tokens - r.usage.input_tokens_details.cached_tokens
            assert computed <= r.usage.input_tokens - previous.usage.input_tokens - previous.usage.output_tokens + 2, turn
        items = [{"type": "function_call_output", "call_id": call.call_id, "output": "ok"}]
        previous = r
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == files
    assert previous.usage.input_tokens > 500
