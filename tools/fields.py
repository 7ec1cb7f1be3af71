#!/usr/bin/env python3
"""The tables of fields in docs/api.md, from what the program says in /openapi.json. Prose around them stays.

    tools/fields.py            writes each table again, between `<!-- fields: .. -->` and `<!-- end of fields -->`
    tools/fields.py --check    compares only; exit status 1 if docs/api.md is not up to date

A marker names a path and some of its fields, or nothing: then the table has every field of every path.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/api.md"
QUIRE = os.environ.get("QUIRE_BIN", str(PAGE.parent.parent / "build/quire"))
TABLE = re.compile(r"<!-- fields:(.*?)-->\n.*?<!-- end of fields -->\n", re.S)
WIDEST = 2147483647
END_OF_MEANING = re.compile(r"\. (Not implemented: only the default is accepted|Accepted without effect)\.$")


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


def row(name, schema, paths):
    meaning = schema["description"]
    mark = END_OF_MEANING.search(meaning)
    if mark:
        meaning = meaning[:mark.start()] + ("; not implemented: only the default is accepted" if mark[1][0] == "N" else "; without effect")
    default = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
    if isinstance(schema.get("default"), float):
        default = f"`{number(schema['default'])}`"
    if schema.get("default", 0) is None:
        default = ""
    cells = [f"`{name}`", *([", ".join(paths)] if paths else []), value(schema), default, meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(found, words):
    """The lines of one table. words: of its marker."""
    if words:
        path, *names = words
        missing = [n for n in names if n not in found[path]]
        if missing:
            sys.exit(f"{PAGE}: {path} has no field {', '.join(missing)}")
        return ["| field | value | default | what |", "|---|---|---|---|", *(row(n, found[path][n], []) for n in names)]
    merged = {}
    for path, fields in found.items():
        for name, schema in fields.items():
            merged.setdefault((name, row(name, schema, [])), (schema, []))[1].append(path.removeprefix("/v1/").removeprefix("/"))
    rows = [row(name, schema, paths) for (name, _), (schema, paths) in sorted(merged.items(), key=lambda m: m[0][0])]
    return ["| field | paths | value | default | what |", "|---|---|---|---|---|", *rows]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--check", action="store_true")
    check = p.parse_args().check
    old, found = PAGE.read_text(), endpoints(document())
    new, n = TABLE.subn(lambda m: f"<!-- fields:{m[1]}-->\n" + "\n".join(table(found, m[1].split())) + "\n<!-- end of fields -->\n", old)
    if n == 0:
        sys.exit(f"{PAGE} has no table of fields")
    if not check:
        PAGE.write_text(new)
    elif new != old:
        sys.exit(f"{PAGE}: not what {QUIRE} says; run tools/fields.py")


if __name__ == "__main__":
    main()
