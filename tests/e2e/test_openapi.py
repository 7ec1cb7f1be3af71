"""The OpenAPI document: it is valid, its examples work, and random requests agree with it.

Long (QUIRE_TEST_LONG): 10,000 random requests in place of 500, and every wrong value of each field in place of one."""
import copy
import json
import os
import random
import re

import jsonschema
import pytest

from conftest import Server

LONG = bool(os.environ.get("QUIRE_TEST_LONG"))
ROUNDS = 10000 if LONG else 500
METHODS = {"get", "post", "delete"}
LACKS = {"/infill"}  # the built-in model has no fill-in-the-middle tokens
# Values of many types, most of them wrong for any one field.
ODD = [None, True, False, 0, 1, -1, 2, -7, 21, 10**6, -10**12, 2**63, 0.5, -0.5, 1.0, 2147483648.5, 1e300, "", "zzz", "any", "never",
       [], [0], [1.5], [None], ["a"], [[]], [True], {}, {"a": 1}, {"include_usage": 3}]
# Fields whose range also depends on other fields.
DEPENDENT = {"max_tokens", "top_logprobs", "best_of"}
REFUSED_BY_RANGE = re.compile(r"must be (from -?\d|over -?\d|at (least|most) -?\d|an? (integer|number|string|object|array)|true or false|one of)")


@pytest.fixture(scope="module")
def server(quire):
    s = Server("builtin", "--served-model-name", "story", "other", "--max-model-len", "96")
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def document(server):
    status, headers, text = server.ask("GET", "/openapi.json", key=None)
    assert status == 200 and headers["content-type"] == "application/json"
    return json.loads(text)


def validator(document, schema):
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]})


def operations(document):
    return [(path, method, o) for path, methods in document["paths"].items() for method, o in methods.items()]


def content(part, media="application/json"):
    return part.get("content", {}).get(media, {})


def posts(document):
    """Of each path that has examples: the operation, the schema of its bodies, and the examples."""
    found = []
    for path, method, o in operations(document):
        body = content(o.get("requestBody", {}))
        if method == "post" and body.get("examples"):
            found.append((path, o, validator(document, body["schema"]), [e["value"] for e in body["examples"].values()]))
    return found


def bodies_of(document, operation):
    """The schemas of an operation's bodies that come from the table of fields: one, or one for each of its forms."""
    schema = content(operation.get("requestBody", {})).get("schema", {})
    return [document["components"]["schemas"][s["$ref"].rpartition("/")[2]] for s in schema.get("anyOf", [schema]) if "$ref" in s]


def check_answer(document, operation, answer, request):
    status, headers, text = answer
    assert status < 500, (request, answer)
    part = operation["responses"].get(str(status), operation["responses"]["default"])
    media = headers.get("content-type", "").split(";")[0]
    if status == 200 and part.get("content"):
        assert media in part["content"], (request, answer)
    schema = content(part).get("schema")
    if media == "application/json" and schema:
        error = jsonschema.exceptions.best_match(validator(document, schema).iter_errors(json.loads(text)))
        assert error is None, (request, text, error)


def test_the_document_is_valid(document):
    assert document["openapi"].startswith("3.1.") and document["info"]["title"] and document["info"]["version"]
    for name, schema in document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert re.fullmatch(r"[A-Za-z0-9_]+", name)
    for reference in re.findall(r'"\$ref": "([^"]*)"', json.dumps(document)):
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"], reference
    for path, method, o in operations(document):
        assert path.startswith("/") and method in METHODS and {"200", "default"} <= o["responses"].keys()
        assert all(r["description"] for r in o["responses"].values())
        assert re.findall(r"{(\w+)}", path) == [p["name"] for p in o.get("parameters", [])]


def is_of(template, path):
    return template == path or (path.endswith("/") and template.startswith(path + "{"))


def test_every_endpoint_has_a_summary_a_schema_of_its_answers_and_an_example(document):
    with_examples = {path for path, *_ in posts(document)}
    for path, method, o in operations(document):
        assert o["summary"], path
        if method == "post" and bodies_of(document, o):
            assert path in with_examples and content(o["responses"]["200"])["schema"] and content(o["responses"]["default"])["schema"], path
    assert {"/v1/responses", "/v1/messages", "/api/chat", "/rerank", "/tokenize", "/v1/completions/render"} <= with_examples


def test_it_has_every_path_of_the_server(server, document):
    paths = json.loads(server.ask("GET", "/", headers={"accept": "application/json"})[2])["paths"]
    assert [p for p in paths if not any(is_of(d, p) for d in document["paths"])] == []
    assert [d for d in document["paths"] if not any(is_of(d, p) for p in paths)] == []


def test_bodies_have_the_fields_of_the_table(document):
    chat = document["components"]["schemas"]["v1_chat_completions_request"]
    assert chat["required"] == ["messages"]
    assert chat["properties"]["top_p"] == {"description": chat["properties"]["top_p"]["description"], "type": ["number", "null"],
                                           "exclusiveMinimum": 0, "maximum": 1, "default": 1}
    assert chat["properties"]["audio"]["enum"] == [None] and "Not implemented" in chat["properties"]["audio"]["description"]
    assert "without effect" in chat["properties"]["user"]["description"]
    for path in ("/v1/completions", "/v1/chat/completions", "/api/chat", "/api/generate"):
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert len(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]) > 8, path


def test_what_is_read_answers_as_the_document_says(server, document):
    for path, method, o in operations(document):
        if method == "get" and path not in ("/debug/pool",):  # a stream that does not end
            check_answer(document, o, server.ask("GET", path.replace("{model}", "other").replace("{id}", "0")), path)


def test_the_examples_work(server, document):
    n = 0
    for path, o, bodies, examples in posts(document):
        for example in examples:
            assert example["model"] == "story"
            bodies.validate(example)
            answer = server.ask("POST", path, example)
            assert answer[0] == (400 if path in LACKS else 200), (path, example, answer)
            check_answer(document, o, answer, example)
            n += 1
    assert n >= 40


def test_models_say_their_length_and_modalities(server):
    model = json.loads(server.ask("GET", "/v1/models/other")[2])
    assert model["max_model_len"] == model["context_length"] == 96
    assert model["input_modalities"] == model["output_modalities"] == ["text"]


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                                  {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}, {"type": "file", "file": {}}])
def test_a_part_that_is_no_text_is_named(server, part):
    content = [{"type": "text", "text": "What is this?"}, part]
    status, _, text = server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": content}]})
    assert status == 400 and json.loads(text)["error"]["message"].startswith(f'messages[0].content[1] is of type "{part["type"]}"')


def valid_value(rng, schema):
    """A value within a field's schema, as far as its type and range go."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "anyOf" in schema:
        return valid_value(rng, rng.choice(schema["anyOf"]))
    types = schema.get("type", ["null", "boolean", "string", "object", "array"])
    kind = rng.choice(types if isinstance(types, list) else [types])
    low, high = schema.get("minimum", schema.get("exclusiveMinimum", -4)), schema.get("maximum", 2147483647)
    if kind == "integer":
        whole = [low, min(low + rng.randrange(9), high), high, float(min(low + 1, high))]
        return rng.choice([v for v in whole if not isinstance(v, float) or abs(v) < 2**53])  # over it a number with an exponent may be any integer
    if kind == "number":
        return rng.choice([low if "exclusiveMinimum" not in schema else low + 1e-3, high, low + (min(high, low + 2) - low) * rng.uniform(0.01, 1)])
    if kind == "string":
        return "".join(rng.choice("ab é\"\\") for _ in range(rng.randrange(1, 6)))
    if kind == "array":
        return [valid_value(rng, schema.get("items", {"type": "string"})) for _ in range(rng.randrange(1, 4))]
    if kind == "object":
        members = schema.get("properties", {})
        return {name: valid_value(rng, members[name]) for name in members if rng.random() < 0.5}
    return rng.choice([True, False]) if kind == "boolean" else None


def edges(schema):
    """Values just outside a field's range."""
    out = [schema["minimum"] - 1] if "minimum" in schema else []
    out += [schema["exclusiveMinimum"]] if "exclusiveMinimum" in schema else []
    return out + ([schema["maximum"] + 1] if "maximum" in schema else [])


def wrong_values(schema):
    """Values that a field's schema forbids: of each other type, and just outside its range."""
    check = jsonschema.Draft202012Validator(schema)
    return [v for v in [True, 7, 0.5, "zzz", [[]], {"a": 1}, *edges(schema)] if not check.is_valid(v)]


def test_a_wrong_value_of_any_field_is_refused_by_its_name(server, document):
    seed, n = random.SystemRandom().randrange(2**32), 0
    print("seed", seed)
    rng = random.Random(seed)
    for path, o, _, examples in posts(document):
        for schema in bodies_of(document, o):
            fits = [e for e in examples if validator(document, schema).is_valid(e)]
            for name, field in schema["properties"].items() if fits else []:
                wrong = wrong_values(field)
                for v in wrong if LONG else rng.sample(wrong, min(len(wrong), 1)):
                    answer = server.ask("POST", path, {**fits[0], name: v})
                    error = json.loads(answer[2])["error"]
                    message = error if isinstance(error, str) else error["message"]
                    assert answer[0] == 400 and name in message, (path, name, v, answer)
                    assert re.search(r"must be |; (leave|give) |does not fit in 64 bits", message), (path, name, v, message)
                    check_answer(document, o, answer, (path, name, v))
                    n += 1
    assert n > (3000 if LONG else 500)


def test_what_is_stored_answers_as_the_document_says(server, document):
    def ask(method, template, path, body=None):
        answer = server.ask(method, path, body)
        assert answer[0] == 200, answer
        check_answer(document, document["paths"][template][method.lower()], answer, (method, path))
        return json.loads(answer[2])

    for more in ({}, {"background": True}):
        made = ask("POST", "/v1/responses", "/v1/responses", {"input": "Tell me a story.", "max_output_tokens": 2, **more})["id"]
        of, path = "/v1/responses/{id}", f"/v1/responses/{made}"
        assert ask("GET", of, path)["id"] == made and ask("GET", of + "/input_items", path + "/input_items")["data"]
        if more:
            assert ask("POST", of + "/cancel", path + "/cancel")["background"]
        assert ask("DELETE", of, path)["deleted"]
    for template, path in (("/v1/models", "/v1/models"), ("/v1/models/{model}", "/v1/models/other")):
        check_answer(document, document["paths"][template]["get"], server.ask("GET", path, headers={"anthropic-version": "2023-06-01"}), path)


def test_random_requests_agree_with_the_document(server, document):
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    known = [p for p in posts(document) if bodies_of(document, p[1])]
    n_accepted = n_forbidden = 0
    for _ in range(ROUNDS):
        path, o, bodies, examples = rng.choice(known)
        body = copy.deepcopy(rng.choice(examples))
        fields = next(b for b in bodies_of(document, o) if validator(document, b).is_valid(body))["properties"]
        changed = rng.sample(sorted(fields), min(len(fields), rng.choice([1, 1, 2, 3])))
        for name in changed:
            wild = rng.random() < 0.4
            body[name] = rng.choice(ODD + 4 * edges(fields[name])) if wild else valid_value(rng, fields[name])
        if rng.random() < 0.05:
            body.pop(rng.choice(sorted(body)))
        answer = server.ask("POST", path, body)
        what = (seed, path, body)
        check_answer(document, o, answer, what)
        allowed = bodies.is_valid(body)
        assert allowed or answer[0] != 200, (what, "accepted, and the schema forbids it", answer)
        n_accepted += answer[0] == 200
        n_forbidden += not allowed
        plain = len(changed) == 1 and changed[0] not in DEPENDENT and {"boolean", "integer", "number"} & set(fields[changed[0]].get("type", []))
        if allowed and plain and answer[0] != 200:
            assert not REFUSED_BY_RANGE.search(answer[2]), (what, "refused, and the schema allows it", answer)
    assert n_accepted > ROUNDS / 10 and n_forbidden > ROUNDS / 10, (seed, n_accepted, n_forbidden)
