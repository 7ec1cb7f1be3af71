"""Generations under random schemas, half of them as arguments of required calls: all validate with Python's jsonschema.

The model is the built-in one at a temperature at which it writes almost anything. QUIRE_GENERATIONS says how many; `make test-long` runs 10,000.
Schemas that the server refuses are counted, and so are answers that their length ended; a tenth at least has to be valid."""
import collections
import concurrent.futures
import json
import os
import random

import jsonschema
import pytest

from conftest import KEY, SHARED, Server

LONG = os.environ.get("QUIRE_TEST_LONG") == "1"
N = int(os.environ.get("QUIRE_GENERATIONS", "10000" if LONG else "100"))
SEED = int(os.environ.get("QUIRE_SEED", "22"))
FORMATS = ["hermes", "qwen3_coder", "mistral", "llama3_json", "deepseek_v31", "glm45", "gemma4", "functiongemma", "pythonic", "openai", "functionary_v32", "mcp_tags", "minimax_m3"]
ENDS = {"2": 5, "28": 5, "61": 3, "93": 3}  # tokens of the built-in model that end strings, arrays and objects, and begin closing marks


def schemas():
    found = []
    for path in sorted((SHARED / "data/json/maskbench").glob("*.jsonl")):
        with open(path, encoding="utf-8") as lines:
            found += [json.loads(line)["schema"] for line in lines]
    return found


def judge(schema, text):
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator(schema).validate(json.loads(text))


def generate(server, schema, as_tool, seed):
    """What became of one generation: a word, and what is wrong."""
    body = {"messages": [{"role": "user", "content": f"number {seed}"}], "max_tokens": 600, "temperature": 1.2, "seed": seed, "logit_bias": ENDS}
    if as_tool:
        tool = {"type": "function", "function": {"name": "answer", "parameters": schema}}
        body |= {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    else:
        body |= {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}
    status, _, text = server.ask("POST", "/v1/chat/completions", body)
    if status == 400:
        return "refused", None
    answer = json.loads(text)
    if status != 200 or "error" in answer:
        return "failed", text
    choice = answer["choices"][0]
    if choice["finish_reason"] == "length":
        return "length", None
    message = choice["message"]
    calls = message.get("tool_calls") or []
    if as_tool and (len(calls) != 1 or calls[0]["function"]["name"] != "answer" or message["content"]):
        return "wrong", f"{json.dumps(schema)}\n{text}"
    written = calls[0]["function"]["arguments"] if as_tool else message["content"]
    try:
        judge(schema, written)
    except Exception as e:  # jsonschema's many kinds, and JSON that is none
        return "wrong", f"seed {seed}: {json.dumps(schema)}\n{written}\n{e}"
    return "valid", None


@pytest.mark.parametrize("form", FORMATS)
def test_generations_under_random_schemas_validate(quire, form):
    all_schemas = schemas()
    if not all_schemas:
        (pytest.fail if LONG else pytest.skip)(f"no schemas in {SHARED}/data/json/maskbench")
    rng = random.Random(f"{SEED} {form}")
    first = FORMATS.index(form) * N  # of the seeds: each format has other schemas and other answers
    s = Server("builtin", "--api-key", KEY, "--tool-call-parser", form)
    counts, wrong = collections.Counter(), []
    jobs = [(rng.choice(all_schemas), i % 2 == 0, first + i) for i in range(N // len(FORMATS))]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for (_, as_tool, _), (word, what) in zip(jobs, pool.map(lambda job: generate(s, *job), jobs)):
            counts["calls" if as_tool else "answers", word] += 1
            wrong += [what] if what else []
    print(f"{form}, seed {SEED}:", ", ".join(f"{n} {kind} {word}" for (kind, word), n in sorted(counts.items())))
    assert s.stop() == 0
    assert not wrong, wrong[0]
    valid = {kind: counts[kind, "valid"] for kind in ("calls", "answers")}
    assert sum(valid.values()) >= len(jobs) // 10 and (N < 1000 or min(valid.values()) > 0), counts
