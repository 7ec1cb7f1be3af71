#!/usr/bin/env python3
"""docs/flags.md: what each flag of vllm serve and llama-server does here, by the program's own table (`quire help --json`).

    tools/flags.py                    writes docs/flags.md again, for the flags that it lists
    tools/flags.py --list FILE        the same for the flags of a list, each entry `-a` / `--b`, usual ones in bold
    tools/flags.py --check            compares only; exit status 1 if docs/flags.md is not up to date
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/flags.md"
QUIRE = os.environ.get("QUIRE_BIN", str(PAGE.parent.parent / "build/quire"))
WORDS = {"works": "Works", "notice": "Taken, without effect", "later": "Later", "refused": "Refused"}
OTHER_MEANING = {"-q": "here it is `--quiet`; give `--quantization`"}


def entries(text):
    """(section, usual, names) of each entry: of a list, whose lines hold entries between ` · `, or of the page, whose lines begin with entries before
    an answer. Entries have flags in backquotes."""
    section, found = None, []
    for line in text.split("\n"):
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("- ") and "`" in line:
            found += [(section, "**" in part, re.findall(r"`([^`]+)`", part)) for part in line[2:].split(": ")[0].split(", ")]
        elif " · " in line:
            found += [(section if not line.startswith("Older") else "Older names", "**" in part, re.findall(r"`([^`]+)`", part)) for part in line.split(" · ")]
    return [e for e in found if e[2]]


def flags_of_serve():
    commands = json.loads(subprocess.run([QUIRE, "help", "--json"], capture_output=True, text=True, check=True).stdout)["commands"]
    rows = next(c["flags"] for c in commands if c["name"] == "serve")
    found = {}
    for row in rows:
        for name in row["names"]:
            found.setdefault(name, row)
    return found


def say(name, row):
    """(kind, text) of a flag for the page, from the program's row."""
    if name in OTHER_MEANING:
        return "refused", OTHER_MEANING[name]
    if row is None:
        return "refused", "no such flag"
    if row["here"] == "works":
        return "works", "" if name == row["names"][0] else f"as `{row['names'][0]}`"
    only = f" (only {', '.join(f'`{c}`' for c in row['choices'])})" if row["here"] == "notice" and row["choices"] else ""
    return row["here"], row["meaning"] + only


def lists(listed, known):
    """A section's lines, by kind: entries with the same answer share one, those that are usual in bold. And how many usual ones are taken and not."""
    answers, count = {}, {True: 0, False: 0}
    for usual, names in listed:
        own = {}
        for name in names:
            own.setdefault(say(name, known.get(name.split(" ")[0])), []).append(f"`{name}`")
        if usual:
            count[next(iter(own))[0] in ("works", "notice")] += 1
        for i, (answer, some) in enumerate(own.items()):
            mark = "**" if usual and i == 0 else ""
            answers.setdefault(answer, []).append(f"{mark}{' / '.join(some)}{mark}")
    lines = []
    for kind, title in WORDS.items():
        some = [f"- {', '.join(names)}" + (f": {text}" if text else "") for (k, text), names in answers.items() if k == kind]
        lines += ["", f"### {title}", "", *some] if some else []
    return lines, count


def page(listed):
    known, lines, count = flags_of_serve(), [], {True: 0, False: 0}
    for section in dict.fromkeys(place for place, _, _ in listed):
        found, some = lists([(usual, names) for place, usual, names in listed if place == section], known)
        lines += ["", f"## {section}", *found]
        count = {good: count[good] + some[good] for good in count}
    head = f"""# Flags of vLLM and llama-server

What `quire serve` does with each of their flags; `quire serve --help-all` describes Quire's own. **Bold**: usual in scripts. Of those
{sum(count.values())}, {count[True]} work or are accepted without effect, with one line on standard error that names them. The others end the program with
the reason, before a model is loaded. `quire run` accepts the flags without effect too. `tools/flags.py` writes this page from the program's
own table (`quire help --json`).

Each of Quire's own flags can be set by an environment variable: `QUIRE_MAX_NUM_SEQS=8` is `--max-num-seqs 8`, and so for every long spelling. The
command line overrides the environment; an empty variable counts as unset; a switch is on with `1`, `true`, `yes` or `on` and off with `0`,
`false`, `no` or `off`; a repeatable flag gets one value. Standard error lists the variables that were read, and QUIRE_ variables that belong to no
flag. Keys and tokens are erased from the process's environment once they are read. What Kubernetes sets for a service named quire
(`QUIRE_PORT=tcp://...`, `QUIRE_SERVICE_HOST`) is ignored. `man quire-serve` has every flag with its variable."""
    return head + "\n" + "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--list", type=pathlib.Path)
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    old = PAGE.read_text() if PAGE.exists() else ""
    new = page(entries(a.list.read_text() if a.list else old))
    if not a.check:
        PAGE.write_text(new)
    elif new != old:
        sys.exit(f"{PAGE}: not what {QUIRE} says; run tools/flags.py")


if __name__ == "__main__":
    main()
