"""Tool calls and reasoning in the answers of `quire run --prompts`: the messages are the server's, member for member."""
import json
import re
import subprocess

import pytest

from conftest import KEY, QUIRE
from test_tools import CALL, CUSTOM, NARROW, SECOND, TEMPLATE, TOOL, USER, talker  # noqa: F401  (talker is a fixture)

THOUGHT = "<think>Rome, I see.</think>"
NAMED = {"type": "function", "function": {"name": "paint"}}
SHELL = '<tool_call>\n{"name": "shell", "arguments": {"input": "ls \\"a\\""}}\n</tool_call>'


def says(text, **fields):
    return {"structured_outputs": {"regex": re.escape(text)}, **fields}


BODIES = [
    says(CALL, tools=[TOOL]),
    says(f"{THOUGHT}\n\nLet me look.\n{CALL}\n{SECOND}", tools=[TOOL], tool_choice="auto"),
    says("Just words.", tools=[TOOL]),
    says(CALL),
    says(CALL, tools=[TOOL], tool_choice="none"),
    says(f"{THOUGHT}Yes."),
    says(f"{THOUGHT}Yes.", include_reasoning=False),
    says(f"{CALL}\n{SECOND}", tools=[TOOL], parallel_tool_calls=False),
    says(f"<think>a</think>{CALL}", tools=[TOOL], n=3),
    says(f"Yes. {CALL}", tools=[TOOL], max_tokens=20),
    says(f"<think>a</think>one two three {CALL}", tools=[TOOL], stop=["two"]),
    says(CALL + SECOND, functions=[TOOL["function"]]),
    says(SHELL, tools=[CUSTOM, TOOL]),
    {"tools": [NARROW], "tool_choice": NAMED, "seed": 2, "temperature": 1},
    {"tools": [NARROW], "tool_choice": "required", "seed": 3, "temperature": 1},
]
BODIES = [{"messages": USER, "max_tokens": 300, "temperature": 0, **body} for body in BODIES]


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """Answers the lines, with these flags."""
    def answers(lines, *flags):
        folder = tmp_path_factory.mktemp("batch")
        (folder / "template.jinja").write_text(TEMPLATE)
        (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = subprocess.run([QUIRE, "run", "builtin", "--prompts", str(folder / "in.jsonl"), "--out", str(folder / "out.jsonl"),
                               "--chat-template", str(folder / "template.jinja"), *flags], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return answers


def without_ids(choices):
    """Messages and finish reasons; ids of calls, which are of the response's id, must be there and differ."""
    ids = [call.pop("id") for c in choices for call in c["message"].get("tool_calls", [])]
    assert all(ids) and len(set(ids)) == len(ids)
    return [(c["message"], c["finish_reason"], c["stop_reason"]) for c in choices]


def test_the_lines_of_a_batch_have_the_messages_of_the_server(talker, batch):  # noqa: F811
    answers = batch([{"custom_id": f"c{i}", "url": "/v1/chat/completions", "body": body} for i, body in enumerate(BODIES)])
    kinds = set()
    for body, answer in zip(BODIES, answers):
        status, _, text = talker.ask("POST", "/v1/chat/completions", body)
        assert status == 200 and answer["response"]["status_code"] == 200
        mine = without_ids(answer["response"]["body"]["choices"])
        assert mine == without_ids(json.loads(text)["choices"])
        kinds |= {name for message, _, _ in mine for name, value in message.items() if value} | {finish for _, finish, _ in mine}
    assert kinds >= {"content", "tool_calls", "function_call", "reasoning", "reasoning_content", "stop", "length"}


def test_a_plain_line_has_calls_and_reasoning_beside_its_text(batch):
    bodies = [BODIES[1], BODIES[2], BODIES[8]]
    both, words, three = batch([{"id": i, **body} for i, body in enumerate(bodies)])
    assert both["text"].strip() == "Let me look." and both["reasoning"] == both["reasoning_content"] == "Rome, I see."
    assert [c["function"]["name"] for c in both["tool_calls"]] == ["get_weather", "other"] and both["finish_reason"] == "tool_calls"
    assert words["text"] == "Just words." and words["finish_reason"] == "stop" and not {"tool_calls", "reasoning"} & set(words)
    assert [(c["text"], c["reasoning"], len(c["tool_calls"])) for c in three["choices"]] == [("", "a", 1)] * 3


def test_parsers_are_named_by_flags(batch):
    [answer] = batch([BODIES[1]], "--tool-call-parser", "none", "--reasoning-parser", "none")
    assert answer["text"].startswith(THOUGHT) and CALL in answer["text"] and answer["finish_reason"] == "stop"
