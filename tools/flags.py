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
WORDS = {"works": "works", "notice": "taken, without effect", "later": "later", "refused": "refused"}
OTHER_MEANING = {"-q": "here it is `--quiet`; give `--quantization`"}


def entries(text):
    """(section, usual, names) of each entry of a list: between section marks, entries have flags in backquotes."""
    section, found = None, []
    for line in text.split("\n"):
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("| ") and "`" in line:
            found.append((section, "**" in line.split(" | ")[0], re.findall(r"`([^`]+)`", line.split(" | ")[0])))
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


def rows(listed, known):
    """A section's rows: each usual flag's own, then the others, of which those with the same answer share one."""
    others, count = {}, {True: 0, False: 0}
    lines = ["| flag | here | how, or why not |", "|---|---|---|"]
    for usual, names in listed:
        shown = {} if usual else others
        for name in names:
            shown.setdefault(say(name, known.get(name.split(" ")[0])), []).append(f"`{name}`")
        if usual:
            count[next(iter(shown))[0] in ("works", "notice")] += 1
            lines += [line(answer, " / ".join(some), "**" if i == 0 else "") for i, (answer, some) in enumerate(shown.items())]
    return lines + [line(answer, " / ".join(some), "") for answer, some in others.items()], count


def line(answer, names, mark):
    return f"| {mark}{names}{mark} | {WORDS[answer[0]]} | {answer[1].replace('|', chr(92) + '|')} |"


def page(listed):
    known, lines, count = flags_of_serve(), [], {True: 0, False: 0}
    for section in dict.fromkeys(place for place, _, _ in listed):
        found, some = rows([(usual, names) for place, usual, names in listed if place == section], known)
        lines += ["", f"## {section}", "", *found]
        count = {good: count[good] + some[good] for good in count}
    head = f"""# Flags of vLLM and llama-server

What `quire serve` does with each of their flags; `quire serve --help-all` describes Quire's own. **Bold**: usual in scripts. Of those
{sum(count.values())}, {count[True]} work or are accepted without effect, with one line on standard error that names them. Others end the program with
the reason, before a model is loaded. `quire run` accepts the flags without effect too. `tools/flags.py` writes this page from the program's
own table (`quire help --json`).

Each of Quire's own flags can be set by an environment variable: `QUIRE_MAX_NUM_SEQS=8` is `--max-num-seqs 8`, and so for every long spelling. The
command line overrides the environment; an empty variable counts as unset; a switch is on with `1`, `true`, `yes` or `on` and off with `0`,
`false`, `no` or `off`; a repeatable flag gets one value. Standard error lists the variables that were read, and QUIRE_ variables that belong to no
flag. `QUIRE_API_KEY`, `QUIRE_OPERATOR_KEY`, `QUIRE_HF_TOKEN`, `QUIRE_KV_TIER_REDIS` and `QUIRE_SIGNING_KEY` are erased from the process's environment once they are read, so
that `/proc/PID/environ` does not show them. What Kubernetes sets for a service named quire (`QUIRE_PORT=tcp://...`, `QUIRE_SERVICE_HOST`) is ignored.
`quire bench`, `perplexity`, `sim` and `demo` read no variables. `man quire-serve` has every flag with its variable."""
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
