#!/usr/bin/env python3
"""Prints the list of files by room: one line a file (a .c and its .h together), with the first sentence of its opening comment.

    tools/map.py [ROOM...]    the list, or these rooms' part of it (kv, backend/cpu, ..)
    tools/map.py --check      prints each file that opens without a comment, and exits 1 then
"""
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


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
    """Tracked sources under include/, src/ and lab/, by folder."""
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "include", "src", "lab"], cwd=ROOT, text=True,
                           capture_output=True, check=True).stdout.split()
    by_room = {}
    for name in sorted(files):
        path = pathlib.PurePosixPath(name)
        if path.suffix in (".c", ".h") and (ROOT / name).exists():
            by_room.setdefault(str(path.parent), {}).setdefault(path.stem.removesuffix(".inc"), []).append(path)
    return by_room


def described(stems):
    """(name, first sentence or None, first path) of each file of a room."""
    for stem, paths in stems.items():
        headers_first = sorted(paths, key=lambda p: p.suffix != ".h")
        what = next(filter(None, (first_sentence(ROOT / p) for p in headers_first)), None)
        name = stem + (".{c,h}" if len(paths) == 2 and all(".inc" not in p.name for p in paths) else "".join(paths[0].suffixes))
        yield name, what, paths[0]


def lost_paths():
    """file:line and path of every `src/...`, `lab/..` or `tests/...` with a suffix that a document names and that is not there."""
    for document in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        for number, line in enumerate(document.read_text().splitlines(), 1):
            for path in re.findall(r"`((?:src|lab|tests|include|tools)/[\w/.-]+\.(?:c|h|py|sh|html))`", line):
                if not (ROOT / path).exists():
                    yield f"{document.relative_to(ROOT)}:{number}: there is no {path}"


def main():
    wanted = [a.removeprefix("src/") for a in sys.argv[1:] if a != "--check"]
    check = "--check" in sys.argv[1:]
    silent = n_files = 0
    for room, stems in rooms().items():
        if wanted and room.removeprefix("src/") not in wanted:
            continue
        if not check:
            print(f"{room}/")
        for name, what, path in described(stems):
            n_files += 1
            if not check:
                print(f"    {name:28} {what or ''}")
            if what is None:
                silent += 1
                print(f"{path}: opens without a comment that says what it is", file=sys.stderr)
    if check:
        lost = list(lost_paths())
        silent += len(lost)
        print("".join(f"{line}\n" for line in lost), end="", file=sys.stderr)
        print(f"map: {n_files} files, {silent - len(lost)} without a comment that says what they are, {len(lost)} named in documents that are not there")
    elif not n_files:
        print(f"no such room; there are {' '.join(r.removeprefix('src/') for r in rooms())}", file=sys.stderr)
    return 1 if silent or not n_files else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
