#!/usr/bin/env python3
"""The lists of fields in docs/api.md, from what the program says in /openapi.json. Prose around them stays.

    tools/fields.py            writes them again, between `<!-- fields -->` and `<!-- end of fields -->`
    tools/fields.py --check    compares only; exit status 1 if docs/api.md is not up to date
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import urllib.request

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/api.md"
QUIRE = os.environ.get("QUIRE_BIN", str(PAGE.parent.parent / "build/quire"))
FIELDS = re.compile(r"(<!-- fields -->\n).*(<!-- end of fields -->\n)", re.S)
WIDEST = 2147483647
TOGETHER = 3
WIDTH = 145
LIKE = "As in the lists above"
# Fields that a sentence names, without an entry: how it begins, and the end of their descriptions.
SHORT = [("Without effect", re.compile(r"\. Accepted without effect\.$")),
         ("Without effect, which a `Warning` says", re.compile(r"without effect, which a Warning header says$")),
         ("Not implemented, so that only the default is accepted", re.compile(r"\. Not implemented: only the default is accepted\.$")),
         ("Other names of a field", re.compile(r"^(?:another name of|the same as) (\w+)$"))]


def document():
    """/openapi.json of a server that is started for it."""
    with subprocess.Popen([QUIRE, "serve", "builtin-small", "--port", "0"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            said = []
            for line in server.stderr:
                said.append(line)
                found = re.search(r"listening on (http://\S+:\d+)", line)
                if found:
                    return json.load(urllib.request.urlopen(found[1] + "/openapi.json"))
            sys.exit("fields: the server did not start:\n" + "".join(said))
        finally:
            server.terminate()
            server.communicate()


def endpoints(doc):
    """{path: {field: schema}} of the paths with a body from the table of fields. One that has all fields of a path before it is left out."""
    found, known = {}, []
    for path, methods in doc["paths"].items():
        schema = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        for part in schema.get("anyOf", [schema]):
            name = part.get("$ref", "").rpartition("/")[2]
            fields = dict(members(doc["components"]["schemas"][name]["properties"])) if name else {}
            if fields and not any(fields.keys() >= other for other in known):
                known.append(fields.keys())
                found[path] = {**fields, **found.get(path, {})}
    return found


def members(properties, before=""):
    for name, schema in properties.items():
        yield before + name, schema
        yield from members(schema.get("properties", {}) if "description" in schema else {}, f"{before}{name}.")


def number(v):
    return str(int(v)) if v == int(v) else str(v)


def bounds(schema):
    low, high = schema.get("minimum"), schema.get("maximum")
    high = None if high is not None and high >= WIDEST else high
    low = None if low is not None and low <= -WIDEST else low
    over = schema.get("exclusiveMinimum")
    if over is not None:
        return f" over {number(over)}" + (f", up to {number(high)}" if high is not None else "")
    if low is not None and high is not None:
        return f" from {number(low)} to {number(high)}"
    return f" from {number(low)}" if low is not None else f" up to {number(high)}" if high is not None else ""


def value(schema):
    """What a field may be, in words."""
    types = schema.get("type", [])
    types = [t for t in (types if isinstance(types, list) else [types]) if t != "null"]
    items = schema.get("items", {}).get("type")
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(v)}`" for v in schema["enum"] if v is not None or len(schema["enum"]) == 1)
    if types == ["array"] and items in ("integer", "string"):
        return f"array of {items}s"
    return " or ".join(types).replace("boolean", "bool") + bounds(schema)


def kind_of(schema):
    """Type, range and default."""
    default = schema.get("default")
    kind = value(schema)
    return kind if default is None else kind + f"; `{number(default) if isinstance(default, float) else json.dumps(default)}`"


def entry(name, schema, paths):
    notes = "; ".join(note for note in (paths, kind_of(schema)) if note)
    return f"- `{name}`{f' ({notes})' if notes else ''}: {schema['description']}"


def shortened(rows, known):
    """(rows for entries, lines of sentences that name the others): fields without effect, those not implemented, other names of a field, and those that
    are known, which are like one of an earlier section. known gets what has an entry."""
    shown, others = [], {}
    for name, schema, paths in rows:
        said = schema["description"]
        start, found = next(((start, m) for start, mark in SHORT for m in [mark.search(said)] if m), ("", None))
        notes = [paths, *(found.groups() if found else [])]
        alike = (name.rpartition(".")[2], said)
        if not found and alike in known:
            start = LIKE
            notes.append(kind_of(schema) if kind_of(schema) != known[alike] else "")
        elif not found:
            known[alike] = kind_of(schema)
            shown.append((name, schema, paths))
            continue
        notes = "; ".join(note for note in notes if note)
        others.setdefault(start, []).append(f"`{name}`" + (f" ({notes})" if notes else ""))
    sentences = [f"{start}: {', '.join(others[start])}." for start in [LIKE, *(start for start, _ in SHORT)] if start in others]
    return shown, [line for said in sentences for line in ("", *textwrap.wrap(said, WIDTH, break_on_hyphens=False))]


def section(title, rows, known):
    shown, others = shortened(rows, known)
    return [f"### {title}", "", *(entry(*r) for r in shown), *others, ""]


def written(found):
    """The lines of the page: the fields of sets of paths that have few, then a section for each set that has TOGETHER or more of its own."""
    merged, sets = {}, {}
    for path, fields in found.items():
        for name, schema in fields.items():
            merged.setdefault((name, json.dumps(schema, sort_keys=True)), (schema, []))[1].append(path.removeprefix("/v1/").removeprefix("/"))
    for (name, _), (schema, paths) in merged.items():
        sets.setdefault(", ".join(paths), []).append((name, schema))
    alone = {paths: rows for paths, rows in sets.items() if len(rows) < TOGETHER}
    known, lines = {}, []
    lines += section("Fields of several paths", sorted(((n, s, paths) for paths, rows in alone.items() for n, s in rows), key=lambda r: r[0]), known)
    for paths, rows in sorted(sets.items(), key=lambda s: (-s[0].count(","), s[0])):
        if paths not in alone:
            lines += section(paths, sorted(((name, schema, "") for name, schema in rows), key=lambda r: r[0]), known)
    return lines


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--check", action="store_true")
    check = p.parse_args().check
    old, fields = PAGE.read_text(), "\n".join(written(endpoints(document())))
    new, n = FIELDS.subn(lambda m: f"{m[1]}\n{fields}\n{m[2]}", old)
    if n != 1:
        sys.exit(f"{PAGE} has no place for the fields")
    if not check:
        PAGE.write_text(new)
    elif new != old:
        sys.exit(f"{PAGE}: not what {QUIRE} says; run tools/fields.py")


if __name__ == "__main__":
    main()
