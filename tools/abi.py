#!/usr/bin/env python3
"""The C API only grows: what its headers declare, against the record tests/library/abi.txt.

  abi.py            compares; prints what was removed, moved or changed, which is status 1, and what is new
  abi.py --update   adds to the record what is new, from where on it stays; refuses where anything was removed, moved or changed
  --include DIR     the headers (include)
  --record FILE     the record
  --library FILE    libquire.so: its exported functions are those of the record
  --cc CC           the C compiler (cc)

A struct whose first member is `size_t size` is sized: the caller says how much of it the caller knows, so it may grow
at its end. Every other one keeps its size. Constants keep their values, but for counts (QUIRE_N_..), which may grow.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNT = re.compile(r"QUIRE_N_")
KINDS = ("struct", "member", "constant", "function")


def preprocessed(cc, include):
    """The text of all headers together without system headers, and the constants among their macros."""
    headers = sorted(include.glob("*.h"))
    source = "".join(f'#include "{h.name}"\n' for h in headers)
    done = subprocess.run([cc, "-std=c11", "-E", f"-I{include}", "-"], input=source, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"abi.py: {cc} does not take the headers:\n{done.stderr}")
    own, lines = False, []
    for line in done.stdout.splitlines():
        mark = re.match(r'# \d+ "([^"]*)"', line)
        if mark:
            own = pathlib.Path(mark[1]).parent == include
        elif own and not line.startswith("#"):
            lines.append(line)
    macros = [m for h in headers for m in re.findall(r"^#define\s+(QUIRE_[A-Z0-9_]+)[ \t]+\S", h.read_text(), re.M)]
    return " ".join(lines), [m for m in macros if m != "QUIRE_VERSION"]


def without_bodies(text):
    """The text without inline functions."""
    out, at = [], 0
    for m in re.finditer(r"static inline [^;{]*\{", text):
        if m.start() < at:
            continue
        out.append(text[at:m.start()])
        depth, at = 1, m.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
    return "".join(out) + text[at:]


def spaced(text):
    return re.sub(r"\s*([*(),\[\]])\s*", r"\1", " ".join(text.split())).replace("*", " *").replace("* *", "**").strip()


def members_of(body):
    """(name, type) of each member of a struct's body."""
    for declaration in filter(None, (d.strip() for d in body.split(";"))):
        pointer = re.match(r"(.*)\(\s*\*\s*(\w+)\s*\)(\(.*\))$", declaration)
        if pointer:
            yield pointer[2], spaced(f"{pointer[1]}(*){pointer[3]}")
            continue
        first, *more = declaration.split(",")
        base, first = re.match(r"(.*?)((?:\*\s*)*\w+\s*(?:\[[^]]*\]\s*)*)$", first.strip()).groups()
        for one in [first, *more]:
            stars, name, arrays = re.match(r"((?:\*\s*)*)(\w+)\s*((?:\[[^]]*\]\s*)*)$", one.strip()).groups()
            yield name, spaced(base + stars + arrays)


def constants_of(text):
    for body in re.findall(r"typedef enum \w* ?\{(.*?)\}", text):
        for one in filter(None, (o.strip() for o in body.split(","))):
            yield one.split("=")[0].strip()


def described(cc, include):
    """{(kind, name): value} of what the headers declare. The compiler computes offsets, sizes and values."""
    text, macros = preprocessed(cc, include)
    text = without_bodies(text)
    structs = {name: list(members_of(body)) for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1 ?;", text)}
    out, rest = {}, re.sub(r"typedef (?:struct|enum) \w* ?\{.*?\} \w+ ?;|typedef [^;{]*\(\*\w+\)\([^;]*;", "", text)
    for result, name, arguments in re.findall(r"(?:^|;|\})\s*((?:const )?\w[\w ]*?[ *]+)(quire_\w+)\s*\(([^;]*)\)\s*(?=;)", rest):
        types = [re.sub(r"(?<=[\s*])\w+$", "", spaced(a)).strip() if spaced(a) != "void" else "void" for a in arguments.split(",")]
        out["function", name] = f"{spaced(result)} ({', '.join(types)})"
    program = [f'#include "{h.name}"' for h in sorted(include.glob("*.h"))] + ["#include <stdio.h>", "int main(void) {"]
    for name, members in structs.items():
        program.append(f'printf("struct\\t{name}\\t%zu\\n", sizeof({name}));')
        for member, kind in members:
            program.append(f'printf("member\\t{name}.{member}\\t%zu %zu {kind}\\n", offsetof({name}, {member}), sizeof((({name} *)0)->{member}));')
    for name in [*constants_of(text), *macros]:
        if not re.search(rf"#define\s+{name}\s+QUIRE_\w+\(|#define\s+{name}\(", "".join(h.read_text() for h in include.glob("*.h"))):
            program.append(f'printf("constant\\t{name}\\t%lld\\n", (long long)({name}));')
    with tempfile.TemporaryDirectory() as there:
        source, binary = pathlib.Path(there) / "abi.c", pathlib.Path(there) / "abi"
        source.write_text("\n".join([*program, "return 0;", "}", ""]))
        built = subprocess.run([cc, "-std=c11", f"-I{include}", str(source), "-o", str(binary)], capture_output=True, text=True)
        if built.returncode != 0:
            sys.exit(f"abi.py: the program that prints the layouts does not compile:\n{built.stderr}")
        for line in subprocess.run([binary], capture_output=True, text=True, check=True).stdout.splitlines():
            kind, name, value = line.split("\t")
            out[kind, name] = value
    return out


def read(path):
    out = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line and not line.startswith("#"):
            kind, name, value = line.split("\t")
            out[kind, name] = value
    return out


def write(path, api):
    lines = ["# What include/*.h declares: sizes of structs; offset, size and type of members; constants; functions.",
             "# tools/abi.py writes and compares it: the C API only grows."]
    for kind in KINDS:
        lines += ["", *(f"{k}\t{name}\t{value}" for (k, name), value in api.items() if k == kind)]
    path.write_text("\n".join(lines) + "\n")


def is_sized(api, struct):
    return api.get(("member", f"{struct}.size"), "").startswith("0 8 size_t")


def broken(old, new):
    """What of the record does not hold any more, a line each."""
    for (kind, name), value in old.items():
        now = new.get((kind, name))
        if now is None:
            yield f"{kind} {name} is gone"
        elif now == value:
            continue
        elif kind == "struct" and is_sized(old, name) and int(now) > int(value):
            continue
        elif kind == "constant" and COUNT.match(name) and int(now) > int(value):
            continue
        else:
            yield f"{kind} {name} was {value}, and is {now}"
    for kind, name in new.keys() - old.keys():
        struct = name.split(".")[0]
        if kind == "member" and ("struct", struct) in old and int(new[kind, name].split()[0]) < int(old["struct", struct]) - 7:
            yield f"member {name} is new and lies before the end of {struct}"


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[2].split("@")[0] for line in lines.splitlines() if line.split()[1] != "A"}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--update", action="store_true")
    a.add_argument("--include", type=pathlib.Path, default=ROOT / "include")
    a.add_argument("--record", type=pathlib.Path, default=ROOT / "tests/library/abi.txt")
    a.add_argument("--library")
    a.add_argument("--cc", default="cc")
    options = a.parse_args()
    old, new = read(options.record), described(options.cc, options.include.resolve())
    wrong = list(broken(old, new))
    functions = {name for kind, name in (old if not options.update else new) if kind == "function"}
    if options.library:
        wrong += [f"function {name} is not exported by {options.library}" for name in sorted(functions - exported(options.library))]
    for line in wrong:
        print(f"abi.py: {line}: a program that was built with an earlier header breaks")
    added = [key for key in new if key not in old or new[key] != old[key]]
    if options.update and not wrong:
        write(options.record, new)
        print(f"abi.py: {options.record}: {len(added)} lines added or grown")
    elif not wrong and added:
        print("\n".join(f"abi.py: {kind} {name} is not in the record" for kind, name in added))
        print(f"abi.py: the API has grown; tools/abi.py --update adds it to {options.record}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
