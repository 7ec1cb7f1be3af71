"""Conversations as clients send them, in the form that each published template takes: the prompt is what jinja2 makes of the conversation
once that is brought into this form by the rules below, which go by the templates' names and know nothing of how the program finds them."""
import copy
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from conftest import QUIRE, SHARED

LONG = os.environ.get("QUIRE_TEST_LONG") == "1"
CHAT = SHARED / "data/templates/chat"
CHECK = pathlib.Path(QUIRE).parent / "quire-check"
# Of each kind one: objects to iterate over, tojson of any value, text alone, text or object, null beside calls, roles and reasoning of their own, short ids.
FEW = ["Qwen3-Coder", "Qwen-Qwen2.5-7B-Instruct", "meetkai-functionary-medium-v3.2", "google-gemma-4-31B-it", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
       "openai-gpt-oss-120b", "Mistral-Small-3.2-24B-Instruct-2506", "GLM-4.6"]

# ---- what the templates take ----

# Arguments are JSON text: they write them behind a + without tojson.
TEXT_ARGUMENTS = {"meetkai-functionary-medium-v3.2", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"}
# Arguments may be text, which is written unchanged ("is string"): those that are no object stay what they are. Elsewhere they are {}.
LOOSE_ARGUMENTS = TEXT_ARGUMENTS | {
    "Bielik-11B-v3.0-Instruct", "GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B", "Reka-Edge", "Qwen-Qwen3-0.6B", "MiroThinker", "Kimi-K2-Instruct",
    "Kimi-K2-Thinking", "mistralai-Ministral-3-14B-Reasoning-2512", "unsloth-mistral-Devstral-Small-2507", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use"}
# They know the role developer; elsewhere it is the system's.
DEVELOPER = {"Reka-Edge", "deepseek-ai-DeepSeek-V4", "google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved", "openai-gpt-oss-120b"}
# Beside calls they fail at a content of None, or write it: it is "".
NO_NONE = {
    "Bielik-11B-v3.0-Instruct", "CohereForAI-c4ai-command-r-plus-tool_use", "GLM-4.6", "GLM-4.7-Flash", "GLM-5.2", "LFM2-8B-A1B", "LFM2.5-Instruct",
    "Qwen-QwQ-32B", "Qwen-Qwen3-0.6B", "ibm-granite-granite-3.3-2B-Instruct", "microsoft-Phi-3.5-mini-instruct", "mistralai-Ministral-3-14B-Reasoning-2512",
    "openai-gpt-oss-120b", "unsloth-mistral-Devstral-Small-2507"}
# They write calls only where the content is None, so "" is None too.
ONLY_NONE = {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B"}
# Names of reasoning; elsewhere it is reasoning_content.
REASONING = {"openai-gpt-oss-120b": "thinking"}
# Reasoning is the first part of the content, of the type thinking.
REASONING_PART = {"mistralai-Ministral-3-14B-Reasoning-2512"}
# Ids of calls have nine characters.
SHORT_IDS = {"Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Mistral-Nemo-Instruct-2407"}
# They fail at a call without an id: it gets one.
NEEDS_IDS = SHORT_IDS | {"unsloth-Apriel-1.5"}
# Roles of which a content may be a list of parts; elsewhere it is one text.
PARTS_OF_ALL = {"Apriel-1.6-15b-Thinker-fixed", "Cohere2MoE", "GLM-5.2", "Qwen3.5-4B", "Reka-Edge", "StepFun3.5-Flash", "stepfun-ai-Step-3.5-Flash", "unsloth-Apriel-1.5"}
PARTS = {name: {"system", "user", "assistant", "tool"} for name in PARTS_OF_ALL} | {
    name: {"system", "user", "assistant"} for name in (
        "GLM-4.6", "GLM-4.7-Flash", "Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Ministral-3-14B-Reasoning-2512", "moonshotai-Kimi-K2",
        "unsloth-mistral-Devstral-Small-2507")} | {
    name: {"user", "assistant", "tool"} for name in ("google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved")} | {
    name: {"system", "user", "assistant", "tool"} for name in ("Kimi-K2-Instruct", "Kimi-K2-Thinking")}


def arguments_for(name, given):
    """What a template gets for a call's arguments."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        value = given
    if value is None or value == "":
        given = value = {}
    if isinstance(value, dict):
        return value if name not in TEXT_ARGUMENTS else given if isinstance(given, str) else json.dumps(value, ensure_ascii=False)
    return (given if isinstance(given, str) else json.dumps(given)) if name in LOOSE_ARGUMENTS else {}


def content_for(name, message):
    content = message.get("content")
    if content is None:
        content = message.get("refusal")
    calls = message.get("tool_calls")
    if content is None or (content == "" and name in ONLY_NONE):
        return None if calls and name not in NO_NONE else ""
    if not isinstance(content, list):
        return content
    parts = [{"type": "text", "text": part if isinstance(part, str) else part.get("text", part.get("refusal"))} for part in content
             if isinstance(part, str) or part["type"] != "thinking"]
    if not parts:
        return content_for(name, {**message, "content": None if calls and name in ONLY_NONE else ""})
    role = {"developer": "system"}.get(message["role"], message["role"])
    return parts if role in PARTS.get(name, ()) else "\n".join(part["text"] for part in parts)


def id_for(name, given):
    return "".join(c for c in given if c.isascii() and c.isalnum())[-9:].rjust(9, "0") if name in SHORT_IDS else given


def thoughts_in(content):
    """The reasoning in a content's parts."""
    found = [part["thinking"] for part in content if isinstance(part, dict) and part["type"] == "thinking"] if isinstance(content, list) else []
    return "\n".join(t if isinstance(t, str) else "".join(part["text"] for part in t) for t in found)


def conversation_for(name, messages):
    """messages in the form that the template of this name takes."""
    out, given = [], []
    for i, message in enumerate(copy.deepcopy(messages)):
        if "function_call" in message and message["function_call"] is not None:
            message["tool_calls"] = [{"id": f"c{i:04}0000", "type": "function", "function": message.pop("function_call")}]
        if message["role"] == "function":
            message |= {"role": "tool", "tool_call_id": f"c{i - 1:04}0000"}
        if message["role"] == "developer" and name not in DEVELOPER:
            message["role"] = "system"
        message["content"] = content_for(name, message)
        for j, call in enumerate(message.get("tool_calls") or []):
            if "id" in call or name in NEEDS_IDS:
                call["id"] = id_for(name, call.get("id", f"c{i:04}{j:04}"))
            call["function"]["arguments"] = arguments_for(name, call["function"].get("arguments"))
        if message.get("tool_calls"):
            given = [call.get("id") for call in message["tool_calls"]]
        if message["role"] == "tool":
            made = given.pop(0) if given else None
            if message.get("tool_call_id", made) is not None:
                message["tool_call_id"] = id_for(name, message.get("tool_call_id", made))
        thoughts = [message.pop(key) for key in ("reasoning_content", "reasoning", "thinking") if key in message] or [thoughts_in(messages[i]["content"])]
        if thoughts[0] and name in REASONING_PART:
            content = message["content"] or []
            content = content if isinstance(content, list) else [{"type": "text", "text": content}]
            message["content"] = [{"type": "thinking", "thinking": thoughts[0]}, *content]
        elif thoughts[0]:
            message[REASONING.get(name, "reasoning_content")] = thoughts[0]
        out.append({key: value for key, value in message.items() if value not in (None, []) or key == "content"})
    return out


# ---- conversations ----

def call(arguments, id="abc123def", name="run_it"):
    function = {"name": name, "arguments": arguments}
    out = {"id": id, "type": "function", "function": {key: value for key, value in function.items() if value is not ...}}
    return {key: value for key, value in out.items() if value is not None}


def calls(*them, content=None, **more):
    return {"role": "assistant", "content": content, "tool_calls": list(them), **more}


def result(content="a.txt", id="abc123def", name="run_it"):
    return {"role": "tool", **({"tool_call_id": id} if id is not None else {}), "name": name, "content": content}


USER = {"role": "user", "content": "List my files"}
GO_ON = {"role": "user", "content": "Go on."}
ARGUMENTS = '{"cmd": "ls -l", "n": 2}'
LONG_ID, OTHER_ID = "call_0a1B2c3D4e5F6g7H8i9J0k1L", "chatcmpl-tool-0123456789abcdef0123456789abcdef"
TEXTS = [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}]
CONVERSATIONS = {
    "a plain talk": [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": "a.txt"}, GO_ON],
    "a developer speaks first": [{"role": "developer", "content": "Be brief."}, USER],
    "arguments as text, content null": [USER, calls(call(ARGUMENTS)), result()],
    "arguments as text, content empty, the user goes on": [USER, calls(call(ARGUMENTS), content=""), result(), {"role": "assistant", "content": "Done."}, GO_ON],
    "arguments as an object, beside text": [USER, calls(call({"cmd": "ls", "deep": {"b": [1, None, True], "a": {}}}), content="I look."), result()],
    "arguments that were cut": [USER, calls(call('{"cmd": "ls'), content=""), result("not run"), GO_ON],
    "empty arguments, none at all, and null": [USER, calls(call("")), result(), calls(call(...)), result(), calls(call("null")), result(), calls(call(None)), result()],
    "arguments that are no object": [USER, calls(call("[1, 2]")), result(), calls(call('"ls"')), result(), calls(call("5")), result(), calls(call("ls -l")), result()],
    "numbers keep their digits and keys their order": [
        USER, calls(call('{"z": 18446744073709551616, "a": -123456789012345678901234567890, "m": 1.5, "e": 1e3, "\\u00e9": "\\ud83d\\ude00 \\"q\\" <b>\\n"}')), result()],
    "calls with other servers' ids": [USER, calls(call(ARGUMENTS, LONG_ID), call('{"cmd": "pwd"}', OTHER_ID)), result("a", LONG_ID), result("/", OTHER_ID)],
    "the old form of a call": [USER, {"role": "assistant", "content": None, "function_call": {"name": "run_it", "arguments": ARGUMENTS}},
                               {"role": "function", "name": "run_it", "content": "a.txt"}],
    "reasoning under the name reasoning": [USER, calls(call({}), content="", reasoning="HARDTHINK"), result()],
    "reasoning under the name reasoning_content": [USER, {"role": "assistant", "content": "a.txt", "reasoning_content": "HARDTHINK"}, GO_ON,
                                                   calls(call(ARGUMENTS), reasoning_content="AGAIN"), result()],
    "reasoning under the name thinking": [USER, calls(call(ARGUMENTS), thinking="HARDTHINK"), result()],
    "an answer as a client's library dumps it": [
        USER, {"role": "assistant", "content": "a.txt", "refusal": None, "annotations": None, "audio": None, "function_call": None, "tool_calls": None}, GO_ON],
    "a refusal, and one as a part": [USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "I won't."}]}, GO_ON,
                                     {"role": "assistant", "content": None, "refusal": "Never."}, GO_ON],
    "texts in parts": [{"role": "system", "content": TEXTS}, {"role": "user", "content": TEXTS}, {"role": "assistant", "content": TEXTS}, GO_ON],
    "reasoning in parts of the content": [
        USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "HARDTHINK"}, {"type": "text", "text": "a.txt"}]}, GO_ON,
        calls(call(ARGUMENTS), content=[{"type": "thinking", "thinking": [{"type": "text", "text": "AGAIN"}, {"type": "text", "text": " AND"}], "closed": True}]),
        result()],
    "calls and results without ids": [USER, calls(call(ARGUMENTS, None), call('{"cmd": "pwd"}', None)), result("a", None), result("/", None)],
    "a result in parts": [USER, calls(call(ARGUMENTS)), result(TEXTS)],
}
TOOLS = [{"type": "function", "function": {"name": "run_it", "description": "runs", "parameters": {
    "type": "object", "properties": {"cmd": {"type": "string", "description": "what"}, "n": {"type": "integer", "description": "how often"}}, "required": ["cmd"]}}}]

# ---- the reference ----

# jinja2 as transformers sets it up: reads lines {template, variables} and writes lines {expected} or {error}.
REFERENCE = textwrap.dedent("""
    import datetime, json, sys
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}
        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("same"), [], [], body).set_lineno(line)
        def same(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    compiled = {}
    for line in sys.stdin:
        case = json.loads(line)
        path = case["template"]
        try:
            compiled[path] = compiled.get(path) or env.from_string(open(path, encoding="utf-8").read())
            out = {"expected": compiled[path].render(**case["variables"])}
        except Exception as e:
            out = {"error_type": "Error", "error": str(e)}
        print(json.dumps(out))
""")


def expected(cases):
    done = subprocess.run([sys.executable, "-c", REFERENCE], input="".join(json.dumps(case) + "\n" for case in cases), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("tools", [TOOLS] + [None] * LONG, ids=["tools", "none"][:1 + LONG])
def test_a_prompt_is_what_jinja2_makes_of_the_conversation_in_the_templates_form(tmp_path, tools):
    pytest.importorskip("jinja2")
    if not CHAT.is_dir():
        pytest.skip(f"{CHAT} is not at hand")
    if not CHECK.exists():
        pytest.skip(f"{CHECK} is not built")
    names = sorted(path.stem for path in CHAT.glob("*.jinja")) if LONG else FEW
    around = {"tools": tools, "bos_token": "<s>", "eos_token": "</s>"}
    cases = [(name, title, messages) for name in names for title, messages in CONVERSATIONS.items()]
    wanted = expected([
        {"template": str(CHAT / f"{name}.jinja"),
         "variables": around | {"messages": conversation_for(name, messages), "documents": None, "add_generation_prompt": True}} for name, _, messages in cases])
    (tmp_path / "chat").mkdir()
    for name in names:
        (tmp_path / "chat" / f"{name}.jsonl").write_text("".join(
            json.dumps(around | {"name": title, "messages": messages} | want) + "\n" for (of, title, messages), want in zip(cases, wanted) if of == name))
    done = subprocess.run([CHECK, "templates", tmp_path, "--root", SHARED, "--json"], capture_output=True, text=True, errors="replace", timeout=500)
    failed = [line for line in done.stdout.splitlines() if '"fail"' in line]
    assert done.returncode == 0 and not failed, "\n".join(failed) or done.stderr
    assert sum("expected" in want for want in wanted) > len(wanted) * 3 // 4
