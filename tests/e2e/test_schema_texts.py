"""Random schemas of every keyword: each text that quire-check walks out of one validates with Python's jsonschema, and random instances are
accepted iff they are valid.

QUIRE_SCHEMAS says how many schemas, QUIRE_SEED where they begin; `make test-long` takes 20,000. Numbers are exact decimals on both sides.
Formats are left to the tests of src/grammar: jsonschema asserts few of them without other packages."""
import decimal
import json
import math
import os
import pathlib
import random
import subprocess
import sys

import jsonschema
import pytest

from conftest import QUIRE

CHECK = pathlib.Path(QUIRE).with_name("quire-check")
N = int(os.environ.get("QUIRE_SCHEMAS", "20000" if os.environ.get("QUIRE_TEST_LONG") == "1" else "600"))
SEED = int(os.environ.get("QUIRE_SEED", "1"))
WALKS = 6
INSTANCES = 24
DRAFT7 = "http://json-schema.org/draft-07/schema#"
sys.set_int_max_str_digits(0)
decimal.getcontext().prec = 3000
NAMES = ["a", "b", "ab", "x1", "\u00e9", "k\""]
TEXTS = ["", "a", "b", "ab", "aab", "x", "x1", "1", "\u00e9", "k\"", "a\nb", "\U0001f600", "abababab"]
PATTERNS = ["^a", "b\\Z", "^[ab]+\\Z", "x", "^.{2,3}\\Z", "^(a|b)*\\Z", "[0-9]", "^[^a]*\\Z", "^a?b?\\Z", "\u00e9"]
NUMBERS = [0, 1, 2, 3, -1, -2, 5, 10, 12, 100, 0.5, 1.5, -0.5, 2.25, 0.1, 1e3, -7.75]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
VALUES = [None, True, False, "a", "ab", [], [1], {}, {"a": 1}, [[]], "x1", {"b": []}]


class Maker:
    """One random schema and instances that are often near it."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.draft7 = self.r.random() < 0.3
        self.n_defs = self.r.choice([0, 0, 1, 2])
        self.about = self.r.choice([None, None, "object", "array", "string", "number"])  # what most of it is about
        self.budget = self.r.choice([6, 12, 25, 40])
        self.defs = "definitions" if self.draft7 else "$defs"
        self.root = {}
        self.root.update(self.schema(0))
        if self.draft7:
            self.root["$schema"] = DRAFT7
        if self.n_defs:
            self.root[self.defs] = {f"d{i}": self.schema(1) for i in range(self.n_defs)}

    def value(self):
        return self.r.choice(VALUES) if self.r.random() < 0.6 else self.r.choice(NUMBERS)

    def schema(self, depth):
        r = self.r
        self.budget -= 1
        if self.budget < 0 or depth > 5:
            return r.choice([True, {}, {"type": r.choice(TYPES)}, {"const": self.value()}, False] if depth else [{}])
        if depth and r.random() < 0.06:
            return r.choice([True, False, {}])
        out = {}
        if r.random() < 0.65:
            about = self.about if depth < 3 and r.random() < 0.8 else None
            out["type"] = about or r.choice(TYPES) if r.random() < 0.8 else r.sample(TYPES, r.choice([2, 3]))
        kinds = out.get("type", [self.about] if self.about and r.random() < 0.7 else TYPES)
        kinds = [kinds] if isinstance(kinds, str) else kinds
        for kind in r.sample(kinds, min(len(kinds), r.choice([0, 1, 1, 2, 3]))):
            getattr(self, "add_" + {"integer": "number", "null": "nothing", "boolean": "nothing"}.get(kind, kind))(out, depth)
        if r.random() < 0.45:
            self.add_applied(out, depth)
        if r.random() < (0.4 if self.about else 0.12):
            self.add_applied(out, depth)
        return out

    def add_nothing(self, out, depth):
        pass

    def add_number(self, out, depth):
        r = self.r
        for k in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if r.random() < 0.3:
                out[k] = r.choice(NUMBERS)
        if r.random() < 0.25:
            out["multipleOf"] = r.choice([1, 2, 3, 0.5, 0.25, 0.1, 7, 1.5])

    def add_string(self, out, depth):
        r = self.r
        if r.random() < 0.4:
            out["minLength"] = r.choice([0, 1, 2, 3])
        if r.random() < 0.4:
            out["maxLength"] = r.choice([0, 1, 2, 3, 5])
        if r.random() < 0.4:
            out["pattern"] = r.choice(PATTERNS)

    def add_array(self, out, depth):
        r = self.r
        prefix = r.random() < 0.35
        if prefix:
            out["items" if self.draft7 else "prefixItems"] = [self.schema(depth + 1) for _ in range(r.choice([1, 2, 3]))]
        if r.random() < 0.5:
            out["additionalItems" if prefix and self.draft7 else "items"] = self.schema(depth + 1)
        if r.random() < 0.3:
            out["minItems"] = r.choice([0, 1, 2, 3])
        if r.random() < 0.3:
            out["maxItems"] = r.choice([0, 1, 2, 3, 5])
        if r.random() < 0.2:
            out["contains"] = self.schema(depth + 1)
            if not self.draft7 and r.random() < 0.5:
                out[r.choice(["minContains", "maxContains"])] = r.choice([0, 1, 2])
        if r.random() < 0.1:
            out["uniqueItems"] = True
        if not self.draft7 and r.random() < 0.08:
            out["unevaluatedItems"] = self.schema(depth + 1)

    def add_object(self, out, depth):
        r = self.r
        if r.random() < 0.6:
            out["properties"] = {n: self.schema(depth + 1) for n in r.sample(NAMES, r.choice([1, 2, 3]))}
        if r.random() < 0.35:
            out["required"] = r.sample(NAMES, r.choice([1, 1, 2]))
        if r.random() < 0.35:
            out["additionalProperties"] = False if r.random() < 0.4 else self.schema(depth + 1)
        if r.random() < 0.2:
            out["patternProperties"] = {p: self.schema(depth + 1) for p in r.sample(PATTERNS, r.choice([1, 1, 2]))}
        if r.random() < 0.15:
            out["propertyNames"] = self.schema(depth + 1)
        if r.random() < 0.15:
            out["minProperties"] = r.choice([0, 1, 2, 3])
        if r.random() < 0.15:
            out["maxProperties"] = r.choice([0, 1, 2, 3])
        if r.random() < 0.15:
            out["dependencies" if self.draft7 else "dependentRequired"] = {r.choice(NAMES): r.sample(NAMES, r.choice([0, 1, 2]))}
        if r.random() < 0.15:
            out["dependencies" if self.draft7 else "dependentSchemas"] = {r.choice(NAMES): self.schema(depth + 1)}
        if not self.draft7 and r.random() < 0.12:
            out["unevaluatedProperties"] = False if r.random() < 0.6 else self.schema(depth + 1)

    def add_applied(self, out, depth):
        r = self.r
        kind = r.choice(["$dynamicRef", "allOf", "anyOf", "anyOf", "oneOf", "not", "if", "enum", "const", "$ref", "$ref"])
        if kind in ("allOf", "anyOf", "oneOf"):
            out[kind] = [self.schema(depth + 1) for _ in range(r.choice([1, 2, 2, 3]))]
        elif kind == "not":
            out[kind] = self.schema(depth + 1)
        elif kind == "if":
            out[kind] = self.schema(depth + 1)
            for k in ("then", "else"):
                if r.random() < 0.7:
                    out[k] = self.schema(depth + 1)
        elif kind == "enum":
            out[kind] = [self.value() for _ in range(r.choice([1, 2, 4]))]
        elif kind == "const":
            out[kind] = self.value()
        elif kind == "$dynamicRef" and not self.draft7 and depth:
            self.root["$dynamicAnchor"] = "top"
            out[kind] = "#top"
        elif kind == "$ref" and self.n_defs:
            out[kind] = r.choice([f"#/{self.defs}/d{i}" for i in range(self.n_defs)] + (["#"] if depth else []))

    def instance(self, s, depth=0):
        """A value that looks at the schema but does not always obey it."""
        r = self.r
        if depth > 5 or not isinstance(s, dict) or r.random() < 0.08:
            return self.value()
        if "$ref" in s and r.random() < 0.8:
            name = s["$ref"].rsplit("/", 1)[-1]
            return self.instance(self.root if name == "#" else self.root.get(self.defs, {}).get(name, True), depth + 1)
        for k in ("const", "enum"):
            if k in s and r.random() < 0.8:
                return s[k] if k == "const" else r.choice(s[k])
        subs = [x for k in ("allOf", "anyOf", "oneOf") for x in s.get(k, [])] + [s[k] for k in ("if", "then", "else", "not") if k in s]
        if subs and r.random() < 0.4:
            return self.instance(r.choice(subs), depth + 1)
        kinds = s.get("type") or r.choice(TYPES)
        kind = kinds if isinstance(kinds, str) else r.choice(kinds)
        return getattr(self, "make_" + kind)(s, depth)

    def make_null(self, s, depth):
        return None

    def make_boolean(self, s, depth):
        return self.r.random() < 0.5

    def make_number(self, s, depth):
        r = self.r
        n = r.choice([s[k] for k in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf") if k in s] or NUMBERS)
        n = n + r.choice([0, 0, 1, -1, 0.5, 0.25])
        return int(n) if n == math.floor(n) else n

    def make_integer(self, s, depth):
        return math.floor(self.make_number(s, depth))

    def make_string(self, s, depth):
        return self.r.choice(TEXTS)

    def make_array(self, s, depth):
        prefix = s.get("prefixItems") or (s["items"] if isinstance(s.get("items"), list) else [])
        rest = s.get("items" if not isinstance(s.get("items"), list) else "additionalItems", True)
        n = self.r.choice([0, 1, 2, 2, 3, 4, s.get("minItems", 0)])
        items = [self.instance(prefix[i] if i < len(prefix) else rest, depth + 1) for i in range(n)]
        if items and "contains" in s and self.r.random() < 0.6:
            items[self.r.randrange(len(items))] = self.instance(s["contains"], depth + 1)
        return items

    def make_object(self, s, depth):
        r = self.r
        known = s.get("properties", {})
        names = set(s.get("required", [])) | set(r.sample(NAMES, r.choice([0, 0, 1, 2]))) | {n for n in known if r.random() < 0.5}
        names |= {r.choice(TEXTS)} if r.random() < 0.3 else set()
        names = sorted(names)  # not in the order of hashes, which differs from run to run
        r.shuffle(names)
        rest = s.get("additionalProperties", s.get("unevaluatedProperties", True))
        patterns = list(s.get("patternProperties", {}).values())
        pick = lambda n: known[n] if n in known else r.choice(patterns) if patterns and r.random() < 0.6 else rest
        return {n: self.instance(pick(n), depth + 1) for n in names}


def exact(value):
    """Numbers as integers where they are whole, else as decimals."""
    if isinstance(value, float):
        value = decimal.Decimal(repr(value))
    if isinstance(value, decimal.Decimal):
        return int(value) if value.adjusted() < 1000 and value == value.to_integral_value() else value
    if isinstance(value, list):
        return [exact(v) for v in value]
    return {k: exact(v) for k, v in value.items()} if isinstance(value, dict) else value


def ecma(schema):
    """The same schema with Python's \\Z written as $."""
    text = json.dumps(schema)
    return json.loads(text.replace("\\\\Z", "$"))


def validator(schema):
    kind = jsonschema.Draft7Validator if schema.get("$schema") == DRAFT7 else jsonschema.Draft202012Validator
    return kind(exact(schema))


def is_valid(v, value):
    try:
        return v.is_valid(value)
    except (RecursionError, decimal.InvalidOperation):
        return None


def number(text):
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent beyond what decimals have
        return decimal.Decimal(text.lower().split("e")[0])


def run(kind, path):
    done = subprocess.run([CHECK, kind, path], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return done.stdout.split("\n")[:-1]


@pytest.mark.skipif(not CHECK.exists(), reason="build/quire-check isn't built")
def test_texts_of_random_schemas_validate_and_valid_instances_are_accepted(tmp_path):
    step, wrong, counts = 500, [], {"schemas": 0, "refused": 0, "texts": 0, "instances": 0, "valid": 0, "too ambiguous": 0}
    for first in range(SEED, SEED + N, step):
        makers = [Maker(seed) for seed in range(first, min(first + step, SEED + N))]
        walks, cases = tmp_path / f"walks{first}", tmp_path / f"cases{first}"
        walks.mkdir()
        cases.mkdir()
        with open(walks / "all.jsonl", "w", encoding="utf-8") as out:
            for i, m in enumerate(makers):
                record = {"schema": ecma(m.root), "n": WALKS, "seed": first + i}
                out.write(json.dumps(record | {"space": m.r.choice(["any", "compact"]), "order": m.r.choice(["any", "schema"])}) + "\n")
        lines = run("texts", walks)
        results = [json.loads(line) for line in lines if line.startswith("{")]
        wrong += [line for line in lines if line.startswith("texts ")]
        assert len(results) == len(makers)
        with open(cases / "all.jsonl", "w", encoding="utf-8") as out:
            for m, result in zip(makers, results):
                v = validator(m.root)
                counts["schemas"] += 1
                counts["refused"] += "error" in result
                for text in result.get("texts", []):
                    counts["texts"] += 1
                    if is_valid(v, exact(json.loads(text, parse_float=number))) is False:
                        wrong.append(f"seed {first + makers.index(m)}: {json.dumps(ecma(m.root))} wrote {text}")
                tests = []
                for _ in range(INSTANCES if "error" not in result or "matches no" in result["error"] else 0):
                    value = exact(m.instance(m.root))
                    valid = is_valid(v, value)
                    value = json.loads(json.dumps(value, default=float))
                    counts["instances"] += 1
                    counts["valid"] += valid is True
                    tests += [{"description": "made", "data": value, "valid": valid}] if valid is not None else []
                out.write(json.dumps({"file": f"seed {first + makers.index(m)}", "schema": ecma(m.root), "tests": tests}) + "\n")
        for line in run("schemas", cases):
            if "too ambiguous for the run" in line:  # a run's limit, which ends an answer with an error
                counts["too ambiguous"] += 1
            elif line.startswith("schemas all.jsonl") and "unsupported" not in line:
                seed = int(line.split("seed ")[1].split(":")[0])
                wrong.append(f"{line}\n  {json.dumps(ecma(makers[seed - first].root))}")
            elif "unsupported" in line and "matches no" in line:
                wrong.append(line)
    print(", ".join(f"{n} {k}" for k, n in counts.items()), f"{len(wrong)} wrong")
    with open(tmp_path / "wrong.txt", "w", encoding="utf-8") as out:
        out.write("\n".join(wrong))
    assert not wrong, f"{len(wrong)}, all in {tmp_path}/wrong.txt: " + "\n".join(wrong[:5])
    assert counts["refused"] < counts["schemas"] / 2 and counts["valid"] > counts["instances"] / 20
