#!/usr/bin/env python3
"""Lengths of files, functions and lines in src/, lab/ and tests/, names of functions, and the size of the stripped program.
size.py [PROGRAM]: exits 1 when a file exceeds 1,500 lines or a function 220; names files over 800 and functions over 60 (kernels: 220).
Lines of C over 110 columns fail, and a function of src/ or lab/ whose name another file's function has."""
import pathlib
import re
import subprocess
import sys
import tempfile

FILE_LONG, FILE_LIMIT = 800, 1500
FUNCTION_LONG, FUNCTION_LIMIT = 60, 220
COLUMNS = 110
KERNELS = "src/backend/"  # kernels may use the limit without being named
# Files that define the same functions for each instruction set, or for each way to build: their names may repeat.
TWINS = re.compile(r"_(plain|avx2|avx512|avx512bf16|avxvnni|neon|i8mm|amx|amx_model)\.[ch]$|\.inc\.h$|src/backend/cpu/simd|cpu/amx_|sampler_append\.h$|src/base/fault\.[ch]$")

NAME = re.compile(r"([A-Za-z_]\w*)\s*\(")


def functions(lines):
    """(name, first line, number of lines) of every function: the house style starts and closes it in column 0."""
    start = name = first = None
    for number, line in enumerate(lines, 1):
        if start is not None:
            if line.startswith("}"):
                yield name, start, number - start + 1
                start = first = None
            continue
        if re.match(r"[A-Za-z_]", line):
            first = number  # a declaration starts here; its parameters may go on below
        if first is not None and line.rstrip().endswith("{"):
            head = " ".join(lines[first - 1:number])
            found = NAME.search(head)
            if found and re.search(r"\)\s*\{\s*$", head) and "=" not in head:
                start, name = first, found.group(1)
            first = None
        elif line.rstrip().endswith(";"):
            first = None


def stripped_bytes(program):
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run(["strip", "-o", copy.name, program], check=True)
        return pathlib.Path(copy.name).stat().st_size


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    failures = n_files = n_lines = 0
    places = {}  # of functions in src and lab, by name
    wide = {}
    paths = [p for top in ("include", "src", "lab", "tests") for suffix in ("c", "h", "py") for p in root.glob(f"{top}/**/*.{suffix}")]
    for path in sorted(paths):
        below = path.relative_to(root).as_posix()
        lines = path.read_text().splitlines()
        n_files += 1
        n_lines += len(lines)
        if len(lines) > FILE_LONG:
            over = len(lines) > FILE_LIMIT
            failures += over
            print(f"{below}: {len(lines)} lines" + (f", over the limit of {FILE_LIMIT}" if over else ""))
        if path.suffix == ".py":
            continue
        too_long = [number for number, line in enumerate(lines, 1) if len(line) > COLUMNS]
        if too_long:
            wide[below] = too_long
        for name, start, length in functions(lines):
            if not below.startswith("tests/") and not TWINS.search(below) and re.match(r"[a-z]", name):
                places.setdefault(name, set()).add(below)
            over = length > FUNCTION_LIMIT
            if over or (length > FUNCTION_LONG and not below.startswith(KERNELS)):
                failures += over
                print(f"{below}:{start}: {name} has {length} lines" + (f", over the limit of {FUNCTION_LIMIT}" if over else ""))
    for name, files in places.items():
        if len(files) > 1 and name != "main":
            failures += 1
            print(f"{', '.join(sorted(files))}: {name} is a function of each; a static function's name begins with its file's noun")
    n_wide = sum(map(len, wide.values()))
    failures += n_wide
    for below, numbers in wide.items():
        print(f"{below}:{numbers[0]}: over {COLUMNS} columns, and {len(numbers) - 1} more lines")
    print(f"size: {n_files} files, {n_lines:,} lines, {failures} over a limit")
    for program in sys.argv[1:]:
        print(f"size: {program} stripped: {stripped_bytes(program):,} bytes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
