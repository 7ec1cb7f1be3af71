#!/usr/bin/env python3
"""The lists of docs/metrics.md, from what a server's /metrics says: curl -s http://127.0.0.1:8000/metrics | tools/metrics.py

Without an argument it prints them; `--write` puts them into docs/metrics.md. tests/e2e/test_metrics.py compares.
"""
import pathlib
import re
import sys
import textwrap

DOC = pathlib.Path(__file__).resolve().parent.parent / "docs/metrics.md"
BEGIN, END = "<!-- tools/metrics.py writes from here -->", "<!-- to here -->"
COMMON = {"vllm:": {"engine", "model_name"}}
SECTIONS = [("vllm:", "The engine, under vLLM's names, with the labels engine and model_name"), ("http_", "HTTP, under the names of vLLM's server"),
            ("quire_", "Our own"), ("process_", "The process, as the client libraries of Prometheus name it")]
OURS, WIDTH = "quire_", 145
PARTS = ("_bucket", "_sum", "_count")


def families(text):
    """{name: (type, help, labels)} in the order of the text."""
    found, helps = {}, {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, said = line[7:].split(" ", 1)
            helps[name] = said
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            found[name] = (kind, helps[name], set())
        elif line:
            name, labels = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ", line).groups()
            family = next((name[:-len(p)] for p in PARTS if name.endswith(p) and name[:-len(p)] in found), name)
            found[family][2].update(re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', labels or ""))
    return found


def lists(text):
    """Each metric with its type, unless its name says it, and with the labels that its section's title does not name. Our own have an entry with what
    /metrics says of them; those of others stand together by type."""
    out, found = [], families(text)
    for prefix, title in SECTIONS:
        common, together = COMMON.get(prefix, set()), {}
        out += [f"### {title}", ""]
        for name, (kind, said, labels) in found.items():
            if name.startswith(prefix):
                own = [*sorted(labels - common - {"le"}), *(f"no {l}" for l in sorted(common - labels))]
                if prefix == OURS:
                    own = [*([] if kind == "counter" and name.endswith("_total") else [kind]), *own]
                shown = f"`{name}`" + (f" ({', '.join(own)})" if own else "")
                together.setdefault(kind, []).append(shown)
                out += [f"- {shown}: {said}"] if prefix == OURS else []
        if prefix != OURS:
            for kind, names in sorted(together.items()):
                out += textwrap.wrap(f"- {kind}: {', '.join(names)}", WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
        out.append("")
    return "\n".join(out)


def documented():
    """The lists in the page."""
    return DOC.read_text().split(BEGIN)[1].split(END)[0].strip()


def main():
    made = lists(sys.stdin.read())
    if "--write" not in sys.argv[1:]:
        print(made)
        return
    before, rest = DOC.read_text().split(BEGIN)
    DOC.write_text(before + BEGIN + "\n\n" + made + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
