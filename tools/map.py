#!/usr/bin/env python3
"""Writes the list of files at the end of ARCHITECTURE.md: one line a file (a .c and its .h together), with the first sentence of its opening comment.

    tools/map.py            rewrites the list
    tools/map.py --check    exits 1 when the list is not what the tree says, or a file opens without a comment
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "ARCHITECTURE.md"
MARK = "## Files\n"


def first_sentence(path):
    """The first sentence of the comment that a file opens with, or None. What explains a feature macro is not that comment."""
    text = path.read_text().lstrip()
    feature = re.match(r"/\*.*?\*/\s*(#define _\w+.*\n\s*)+", text)
    text = text[feature.end():] if feature else text
    found = re.match(r"/\*(.*?)\*/", text, re.S)
    if not found:
        return None
    words = re.sub(r"\s*\n\s*\*?\s*", " ", found.group(1)).strip()
    end = re.search(r"(?<!al)(?<!e\.g)(?<!i\.e)\.(\s|$)", words)
    return words[:end.start()] if end else words


def rooms():
    """Tracked sources under include/ and src/, by folder."""
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "include", "src"], cwd=ROOT, text=True,
                           capture_output=True, check=True).stdout.split()
    by_room = {}
    for name in sorted(files):
        path = pathlib.PurePosixPath(name)
        if path.suffix in (".c", ".h") and (ROOT / name).exists():
            by_room.setdefault(str(path.parent), {}).setdefault(path.stem.removesuffix(".inc"), []).append(path)
    return by_room


def listing():
    lines, silent = [], []
    for room, stems in rooms().items():
        lines += ["", f"### {room}", "", "| file | what |", "|---|---|"]
        for stem, paths in stems.items():
            headers_first = sorted(paths, key=lambda p: p.suffix != ".h")
            what = next(filter(None, (first_sentence(ROOT / p) for p in headers_first)), None)
            if what is None:
                silent.append(str(paths[0]))
                what = ""
            name = stem + (".{c,h}" if len(paths) == 2 and all(".inc" not in p.name for p in paths) else "".join(paths[0].suffixes))
            lines.append(f"| {name} | {what.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n", silent


def main():
    page = PAGE.read_text()
    head = page[:page.index(MARK) + len(MARK)]
    body, silent = listing()
    for path in silent:
        print(f"{path}: opens without a comment that says what it is", file=sys.stderr)
    if "--check" in sys.argv[1:]:
        if page != head + body:
            print("ARCHITECTURE.md: the list of files is out of date; run tools/map.py", file=sys.stderr)
        return 1 if silent or page != head + body else 0
    PAGE.write_text(head + body)
    return 0


if __name__ == "__main__":
    sys.exit(main())
