"""A model's chat templates: by name, with a request's documents, effort and variables; a request's own text; what a message's special tokens are."""
import json
import shutil
import subprocess

import pytest

from conftest import KEY, QUIRE, Server

END = "<|endoftext|>"
END_ID = 0
TALK = "{% for m in messages %}{{ m.content }}|{% endfor %}"
TEMPLATES = {
    "chat_template.jinja": "default:" + TALK + "{% if documents %}has documents{% endif %}",
    "additional_chat_templates/rag.jinja": "rag:" + TALK + "{% for d in documents or [] %}{{ d.title }}={{ d.text }};{% endfor %}",
    "additional_chat_templates/parts.jinja": "parts:{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}|{% endfor %}",
    "additional_chat_templates/effort.jinja": "effort:{{ reasoning_effort if reasoning_effort is defined else 'none' }},{{ depth }}{{ verbosity }}",
    "additional_chat_templates/whole.jinja": "{% extends 'frame' %}{% from 'macros' import shout %}{% block body %}{% for m in messages %}{{ shout(m.content) }}{% endfor %}{% endblock %}",
    "additional_chat_templates/frame.jinja": "[{% block body %}{% endblock %}]",
    "additional_chat_templates/macros.jinja": "{% macro shout(x) %}{{ x | upper }}!{% endmacro %}",
    "additional_chat_templates/lost.jinja": "{% include 'nowhere' %}",
    "additional_chat_templates/guard.jinja": "<|endoftext|>{% for m in messages %}{{ m.content }}{% endfor %}<|endoftext|>",
}
CALLS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}%s{% endfor %}{% endfor %}"
TEMPLATES |= {
    "additional_chat_templates/objects.jinja": CALLS.replace("%s", "{% for k, v in c.function.arguments | items %}[{{ k }}={{ v }}]{% endfor %}"),
    "additional_chat_templates/tojson.jinja": CALLS.replace("%s", "{{ c.function.arguments | tojson }}"),
    "additional_chat_templates/plaintext.jinja": CALLS.replace("%s", "{{ ':' + c.function.arguments }}"),
}
MESSAGE = {"role": "user", "content": "Hello"}


def history(arguments):
    """A conversation with a call, as clients send it."""
    call = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": arguments}}
    return [{"role": "developer", "content": "Go"}, MESSAGE, {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"}]


ARGUMENTS = '{"n": 18446744073709551616, "cmd": "ls"}'
HISTORIES = [  # template, arguments, what it writes of them
    ("objects", ARGUMENTS, "[n=18446744073709551616][cmd=ls]"),
    ("tojson", ARGUMENTS, '{"n": 18446744073709551616, "cmd": "ls"}'),
    ("plaintext", ARGUMENTS, ':{"n": 18446744073709551616, "cmd": "ls"}'),
    ("plaintext", {"cmd": "ls", "n": [1]}, ':{"cmd": "ls", "n": [1]}'),
    ("objects", '{"cmd": "ls', ""), ("tojson", '{"cmd": "ls', "{}"), ("plaintext", '{"cmd": "ls', ':{"cmd": "ls'),
    ("tojson", '{"a": 1, "b": 2, "a": [3]}', '{"a": [3], "b": 2}'),  # as Python reads it
    ("tojson", {"n": 18446744073709551616, "m": -(10 ** 30)}, '{"n": 18446744073709551616, "m": -1000000000000000000000000000000}'),
    ("tojson", '{"n": ' + "7" * 5000 + "}", "{}"),  # more digits than Python reads
    ("objects", "", ""), ("tojson", "null", "{}"), ("plaintext", None, ":{}"),
]


@pytest.fixture(scope="module")
def model(quire, tmp_path_factory):
    path = tmp_path_factory.mktemp("templates") / "model"
    shutil.copytree("models/builtin-hf", path)
    (path / "additional_chat_templates").mkdir()
    for name, text in TEMPLATES.items():
        (path / name).write_text(text)
    return path


DIGITS = "18446744073709551615", "-99999999999999999999999999", "7" * 60


def test_integers_of_any_size_reach_templates_with_their_digits(model):
    text = "{% for m in messages %}{{ m.content }}{{ m.extra | tojson }}{% endfor %}{{ tools | tojson }}{{ documents }}{{ big }}{{ big > 18446744073709551614 }}"
    body = """{"messages": [{"role": "user", "content": "hi", "extra": {"n": %s}}], "max_tokens": 1, "metadata": {"x": %s}, "return_token_ids": true, "chat_template": %s,
              "documents": [{"title": "t", "n": %s}], "chat_template_kwargs": {"big": %s},
              "tools": [{"type": "function", "function": {"name": "page", "parameters": {"type": "object", "properties": {"limit": {"type": "integer", "minimum": 0,
                         "default": %s, "enum": [%s]}}}}}]}"""
    s = Server(str(model), "--api-key", KEY, "--trust-request-chat-template")
    try:
        for n in DIGITS:
            status, _, answer = s.ask("POST", "/v1/chat/completions", raw=body % (n, n, json.dumps(text), n, n, n, n))
            assert status == 200, answer
            ids = ",".join(map(str, json.loads(answer)["prompt_token_ids"]))
            shown = subprocess.run([QUIRE, "tokenize", "models/builtin-hf", "--decode", ids], capture_output=True, text=True).stdout
            assert shown.count(n) >= 5 and (str(int(n) > 18446744073709551614) in shown), shown
    finally:
        assert s.stop() == 0


def served(model, *flags):
    s = Server(str(model), "--api-key", KEY, *flags)
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def server(model):
    yield from served(model)


@pytest.fixture(scope="module")
def trusting(model):
    yield from served(model, "--trust-request-chat-template")


@pytest.fixture(scope="module")
def parsing(model):
    yield from served(model, "--special-tokens-in-messages", "parse")


def ask(s, path, **fields):
    status, _, text = s.ask("POST", path, {"max_tokens": 1, "return_token_ids": True, **fields})
    return status, json.loads(text)


def chat(s, *messages, **fields):
    """The prompt's ids, without the BOS that the tokenizer puts before a template that writes none."""
    status, answer = ask(s, "/v1/chat/completions", messages=list(messages) or [MESSAGE], **{"add_special_tokens": False, **fields})
    assert status == 200, answer
    return answer["prompt_token_ids"]


def ids_of(s, text):
    status, answer = ask(s, "/v1/completions", prompt=text, add_special_tokens=False)
    assert status == 200, answer
    return answer["choices"][0]["prompt_token_ids"]


def refused(s, **fields):
    status, answer = ask(s, "/v1/chat/completions", messages=[MESSAGE], **fields)
    assert status == 400, answer
    return answer["error"]


@pytest.mark.parametrize("fields,text", [
    ({}, "default:Hello|"),
    ({"chat_template": "default"}, "default:Hello|"),
    ({"chat_template": None}, "default:Hello|"),
    ({"chat_template": "rag"}, "rag:Hello|"),
    ({"documents": [{"title": "a", "text": "b"}]}, "default:Hello|has documents"),
    ({"chat_template": "rag", "documents": [{"title": "a", "text": "b"}, {"title": "c", "text": "d"}]}, "rag:Hello|a=b;c=d;"),
    ({"chat_template": "effort", "chat_template_kwargs": {"depth": 3}}, "effort:none,3"),
    ({"chat_template": "effort", "reasoning_effort": "high"}, "effort:high,"),
    ({"chat_template": "effort", "verbosity": "low"}, "effort:none,low"),
    ({"chat_template": "effort", "reasoning_effort": "high", "chat_template_kwargs": {"reasoning_effort": "low"}}, "effort:low,"),
    ({"chat_template": "whole"}, "[HELLO!]"),
    ({"chat_template": "parts"}, "parts:Hello|"),  # which takes contents in another form than the default one
])
def test_a_request_names_a_template_and_gives_its_variables(server, fields, text):
    assert chat(server, **fields) == ids_of(server, text)


@pytest.mark.parametrize("template,arguments,text", HISTORIES)
def test_a_call_of_the_history_reaches_a_template_in_its_form(server, template, arguments, text):
    ids = chat(server, *history(arguments), chat_template=template)
    assert ids == ids_of(server, f"<system>Go<user>Hello<assistant>run{text}<tool>a.txt")


def test_a_call_of_the_history_reaches_a_template_in_its_form_in_batches_too(server, model, tmp_path):
    bodies = [{"messages": history(arguments), "chat_template": template, "max_tokens": 8, "temperature": 0} for template, arguments, _ in HISTORIES]
    lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": body} for i, body in enumerate(bodies)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = subprocess.run([QUIRE, "run", str(model), "--prompts", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out.jsonl")],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line)["response"]["body"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for answer, body in zip(answers, bodies, strict=True):
        status, other = ask(server, "/v1/chat/completions", **body)
        assert status == 200 and answer["usage"]["prompt_tokens"] == other["usage"]["prompt_tokens"]
        assert answer["choices"][0]["message"]["content"] == other["choices"][0]["message"]["content"]


def test_a_template_that_the_model_lacks_is_an_error_with_those_it_has(server):
    error = refused(server, chat_template="tool_use")
    assert error["param"] == "chat_template" and all(name in error["message"] for name in ("tool_use", "default", "effort", "rag", "whole")), error


def test_a_template_that_includes_what_is_not_there_says_what_there_is(server):
    error = refused(server, chat_template="lost")
    assert "no template named nowhere" in error["message"] and "rag" in error["message"], error


@pytest.mark.parametrize("fields", [{"documents": ["a"]}, {"documents": {"title": "a"}}, {"reasoning_effort": 3}, {"chat_template": 7}, {"chat_template_kwargs": []}])
def test_fields_of_other_types_are_refused_by_name(server, fields):
    assert refused(server, **fields)["param"].split(".")[1] == next(iter(fields))


def test_a_requests_own_template_needs_the_operators_trust(server, trusting):
    text = "{% for m in messages %}<|endoftext|>{{ m.content }}{% endfor %}{% include 'rag' %}"
    error = refused(server, chat_template=text)
    assert "--trust-request-chat-template" in error["message"]
    ids = chat(trusting, chat_template=text)
    assert ids == ids_of(trusting, f"{END}Hellorag:Hello|")  # what it writes counts as the model's own
    assert chat(trusting, {"role": "user", "content": END}, chat_template=text).count(END_ID) == 1
    assert chat(trusting, chat_template="rag") == ids_of(trusting, "rag:Hello|")
    error = refused(trusting, chat_template="{% for %}")
    assert error["param"] == "chat_template" and "line 1" in error["message"]


def test_special_tokens_in_messages_are_text_or_tokens_as_the_operator_says(server, parsing):
    message = {"role": "user", "content": f"a{END}b"}
    plain, parsed = (chat(s, message, chat_template="guard") for s in (server, parsing))
    assert [i for i, t in enumerate(plain) if t == END_ID] == [0, len(plain) - 1]
    assert parsed == ids_of(parsing, f"{END}a{END}b{END}") and parsed.count(END_ID) == 3
    assert chat(server, chat_template="guard") == chat(parsing, chat_template="guard")


def test_a_packed_model_keeps_its_templates(quire, model, server, tmp_path):
    packed = tmp_path / "model.qp"
    done = subprocess.run([QUIRE, "pack", str(model), "-o", str(packed)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    s = Server(str(packed), "--api-key", KEY)
    try:
        for name in ("default", "rag", "whole"):
            assert chat(s, chat_template=name) == chat(server, chat_template=name)
    finally:
        assert s.stop() == 0
