#!/usr/bin/env python3
"""Runs the experiments of tools/experiments_list.py, keeps what they printed, and writes the tables of the pages of docs/. A page may show one
experiment's table whole, with its command, the published figures, the ratio and why they differ; or the published figures that ON_PAGES chooses
for it, of several experiments. Prose stands in the pages, around the marks.

    tools/experiments.py                 all of them: under two hours
    tools/experiments.py NAME ...        these only
    tools/experiments.py --quick         all in ten minutes, fewer runs and smaller sizes, into build/experiments-quick.md, which is marked as quick
    tools/experiments.py --write         the pages again, from what was kept
    tools/experiments.py --check         that the pages are what was kept, by the commands that are named, that no published figure is left out or is
                                         another there, and that no page has a measured figure of which it does not say what prints it (measured.py)
    tools/experiments.py --show NAME ... the kept tables of these; of not-reproduced the published figures that have none here
    tools/experiments.py --list          names, commands, and the seconds that each took

What a run printed is kept in bench/results/experiments.json with command, machine, commit and date; a page is made of that alone.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import bench_save
import measured
from experiments_list import EXPERIMENTS, NOT_REPRODUCED, ON_PAGES

ROOT = bench_save.ROOT
KEPT = ROOT / "bench" / "results" / "experiments.json"
QUICK = ROOT / "build" / "experiments-quick.md"
PUBLISHED = pathlib.Path(os.environ.get("QUIRE_SHARED", ROOT.parent / "shared"), "golden", "published.md")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BEGIN, END = r"<!-- table: (\S+) -->\n", "<!-- end of table -->\n"
MOST_SECONDS = 2400
NO_FIGURE = "not-reproduced"  # the table of published figures that have none here
CHOSEN, MOST_ROWS = "published-", 12  # published-PAGE: the table of the figures that ON_PAGES has for a page


class Output:
    """What a command printed: its tables by row and title, its lines by pattern."""

    def __init__(self, text):
        self.lines = text.splitlines()

    def word(self, row, title, nth=1):
        """What stands in the first row that begins with these words, in the column whose title (the nth of that name) ends above the word's end."""
        for i, line in enumerate(self.lines):
            header = next((h for h in reversed(self.lines[:i]) if title in h), None)
            if header is not None and (" ".join(line.split()) + " ").startswith(row + " "):
                ends = [m.end() for m in re.finditer(re.escape(title), header)]
                cell = next((m for m in re.finditer(r"\S+", line) if m.start() < ends[nth - 1] <= m.end()), None)
                if cell is None:
                    raise LookupError(f"nothing under {title!r} in row {row!r}")
                return cell.group()
        raise LookupError(f"no row {row!r} below a column {title!r}")

    def value(self, row, title, nth=1):
        """The number there."""
        word = self.word(row, title, nth)
        try:
            return float(word.rstrip("%"))
        except ValueError:
            raise LookupError(f"no number but {word!r} under {title!r} in row {row!r}") from None

    def found(self, pattern, group=1):
        for line in self.lines:
            found = re.search(pattern, line)
            if found:
                return found.group(group)
        raise LookupError(f"no line like {pattern!r}")


def plain(x):
    if isinstance(x, str):
        return x
    if isinstance(x, tuple):
        return f"{plain(x[0])} to {plain(x[1])}" if x[0] != x[1] else plain(x[0])
    return f"{x:,.0f}" if float(x).is_integer() or abs(x) >= 1000 else f"{x:.3g}" if abs(x) < 0.1 else f"{x:.2f}"


def ratio(published, here):
    """Of a figure to the published one; of a range, to its nearer end, or that it is inside."""
    if isinstance(published, str) or isinstance(here, str):
        return "-"
    if isinstance(here, tuple):
        ends = [ratio(published, end) for end in here]
        return " to ".join(dict.fromkeys(ends))
    low, high = published if isinstance(published, tuple) else (published, published)
    if low <= here <= high and low != high:
        return "inside"
    nearest = low if here < low else high
    if not nearest:
        return "-"
    return f"{here / nearest:.2f}" if abs(here / nearest) >= 0.1 or here == 0 else f"{here / nearest:.2g}"


def held_rows(experiment, output, quick):
    """The rows beside what is published. A quick run has not all of them."""
    for h in experiment.held:
        try:
            here = h.here(output) if callable(h.here) else h.here
        except LookupError:
            if not quick:
                raise
            continue
        yield [h.ids, h.what, plain(h.published), plain(here), ratio(h.published, here), h.why]


def table(experiment, kept):
    """One table of a page: lines."""
    quick = kept["command"] != experiment.command
    box = kept["machine"]
    yield "".join(f"`{line}`, then " for line in kept["before"]) + f"`{kept['command']}`\n\n"
    yield "```\n" + kept["output"].rstrip("\n") + "\n```\n\n"
    yield f"{kept['date']}, {box['processor']} (family {box['family']}), {box['cores']} cores.\n"
    if experiment.held:
        yield "\n"
        yield from text_table(["published", "what", "there", "here", "ratio", "why"], held_rows(experiment, Output(kept["output"]), quick))


def text_table(titles, rows):
    yield "| " + " | ".join(titles) + " |\n"
    yield "|" + "---|" * len(titles) + "\n"
    for row in rows:
        yield "| " + " | ".join(row) + " |\n"


def key_of(experiment, box):
    """Under which name its result is kept: figures of attention and the like are shown for each processor."""
    if not experiment.each_processor:
        return experiment.name
    return f"{experiment.name}@{re.sub('[^a-z0-9]+', '-', (box['processor'] + ' ' + box['family']).lower()).strip('-')}"


def chosen_rows(page, kept):
    """The published figures of a page beside those here, as ON_PAGES chooses them."""
    for name, ids, nth in ON_PAGES[page]:
        experiment = next(e for e in EXPERIMENTS if e.name == name)
        h = [h for h in experiment.held if h.ids == ids][nth]
        here = h.here(Output(kept[name]["output"])) if callable(h.here) else h.here
        yield [h.what, f"{plain(h.published)} ({h.ids.replace(' ', ', ')})", plain(here), h.why, f"`{name}`"]


def block(name, kept):
    """What stands between the marks of that name."""
    if name.startswith(CHOSEN):
        return "".join(text_table(["what", "published", "here", "why", "experiment"], chosen_rows(name.removeprefix(CHOSEN), kept)))
    if name == NO_FIGURE:
        return "".join(text_table(["published", "why there is no figure here"], ([", ".join(ids.split()), why] for ids, why in NOT_REPRODUCED)))
    experiment = next((e for e in EXPERIMENTS if e.name == name), None)
    if experiment is None:
        raise LookupError(f"there is no experiment {name!r}")
    found = [k for key, k in sorted(kept.items()) if key.split("@")[0] == name]
    if not found:
        raise LookupError(f"{name} was never run: tools/experiments.py {name}")
    return "\n".join("".join(table(experiment, k)) for k in found)


def written(text, kept):
    """A page with every table in its place; one that was never run stays as it stands."""
    never_run = {e.name for e in EXPERIMENTS} - {key.split("@")[0] for key in kept}

    def fill(found):
        if found[1] in never_run or (found[1].startswith(CHOSEN) and never_run & {name for name, *_ in ON_PAGES[found[1].removeprefix(CHOSEN)]}):
            return found[0]
        return f"<!-- table: {found[1]} -->\n\n" + block(found[1], kept) + "\n" + END
    return re.sub(BEGIN + f"(.*?){re.escape(END)}", fill, text, flags=re.S)


def read_kept():
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


# ---- running ----

def run(experiment, command, program):
    """Runs it where its files lie; what is kept of it."""
    words = shlex.split(command)
    environment = {**os.environ, "PATH": f"{program.resolve().parent}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as place:
        shared = pathlib.Path(os.environ.get("QUIRE_SHARED", ROOT.parent / "shared")).resolve()
        pathlib.Path(place, "a").mkdir()
        pathlib.Path(place, "shared").symlink_to(shared)
        where = pathlib.Path(place, "a")
        for link, to in {"../docs": "docs", "../real": "build/real", "tools": "tools"}.items():
            (where / link).symlink_to(ROOT / to)
        for line in experiment.before:
            subprocess.run(line, shell=True, cwd=where, env=environment, check=True)
        print(f"{experiment.name}: {command}", file=sys.stderr, flush=True)
        start = time.monotonic()
        done = subprocess.run(words, cwd=where, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr.strip() or done.returncode}")
    box = bench_save.machine()
    return {"command": command, "before": list(experiment.before), "date": str(datetime.date.today()), "machine": {k: box[k] for k in ("processor", "family", "cores")},
            "commit": bench_save.git("rev-parse", "HEAD"), "seconds": round(time.monotonic() - start, 1), "output": done.stdout}


def run_all(names, program, quick):
    """Runs those of these names, or all, and keeps each as soon as it ended. What there is then, and the names of those that failed."""
    kept, box, failures = {} if quick else read_kept(), bench_save.machine(), []
    for e in EXPERIMENTS:
        if names and e.name not in names:
            continue
        try:
            found = run(e, e.quick if quick else e.command, program)
        except (RuntimeError, subprocess.SubprocessError) as failed:
            if names:
                sys.exit(str(failed))
            print(f"{e.name}: {failed}", file=sys.stderr)
            failures.append(e.name)
            continue
        kept = {**(kept if quick else read_kept()), key_of(e, box): found}
        if not quick:
            KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return kept, failures


QUICK_HEAD = """# A quick run

Tables with less work than those of docs/: fewer runs, rows and requests, as each command says. They show that every experiment runs, and
are no figures to cite. Rows beside published figures are left out where a quick run does not have them.

"""


def write_quick(kept, failures):
    QUICK.parent.mkdir(exist_ok=True)
    titles = {name: f"## {name}\n\n" for name in dict.fromkeys(key.split("@")[0] for key in kept)}
    seconds = sum(k["seconds"] for k in kept.values())
    QUICK.write_text(QUICK_HEAD + "".join(title + block(name, kept) + "\n" for name, title in titles.items())
                     + "".join(f"{name} failed.\n" for name in failures))
    print(f"{QUICK.relative_to(ROOT)}: {len(titles)} tables in {seconds:.0f} s, {len(failures)} failed")


def write_pages(kept):
    for page in PAGES:
        text = page.read_text()
        new = written(text, kept)
        if new != text:
            page.write_text(new)
            print(page.relative_to(ROOT))


# ---- checking ----

TOLD = {"threads": (r"(?:^|\s)(?:-t|--threads) (\d+)", r"\b(\d+) threads?\b"), "runs": (r"--runs (\d+)", r"\b(\d+) runs\b"),
        "page size": (r"--page-size (\d+)", r"\bpage (\d+)\b")}


def wrong_flags(command, output):
    """What a table says of itself against the flags of its command."""
    for what, (asked, told) in TOLD.items():
        asked, told = re.search(asked, command), re.findall(told, output)
        if asked and told and asked[1] not in told:
            yield f"{what}: the command has {asked[1]}, the table says {told[-1]}"


def published_rows(text):
    """What published.md has by id: a row of a table, or a table below its title with what is said under it."""
    rows, current = {}, None
    for line in text.splitlines():
        begins = re.match(r"(?:\| *)?\**([FLWRBX]\d+)\**[ .]", line)
        if begins:
            current = begins[1]
            rows[current] = line
        elif line.startswith("#"):
            current = None
        elif current:
            rows[current] += "\n" + line
    return rows


IN_WORDS = {"half": 0.5, "twice": 2, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}


def numbers(text):
    return ({float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}
            | {n for word, n in IN_WORDS.items() if re.search(rf"\b{word}\b", text)})


def stands_there(value, there):
    """Whether it is one of the numbers there, in MiB one in GiB, as a factor one of a percentage, or what two of them give."""
    alone = {0, *there, *(1024 * n for n in there), *(1000 * n for n in there), *(1 + n / 100 for n in there), *(100 - n for n in there)}
    both = (x for a in there for b in there for x in (a / b if b else 0, a * b))
    return any(abs(x - value) < 1e-9 for x in alone) or any(abs(x - value) < 1e-9 or (value < 10 and round(x, 2) == value) for x in both)


def wrong_published(rows):
    """Figures of the list that their rows of published.md do not have."""
    for e in EXPERIMENTS:
        for h in e.held:
            ids = re.findall(r"\b[FLWRBX]\d+\b", h.ids)
            values = h.published if isinstance(h.published, tuple) else (h.published,)
            there = set().union(*(numbers(rows.get(i, "").replace(i, "")) for i in ids))
            yield from (f"{e.name}: {plain(v)} is not in {h.ids} of published.md: {h.what}"
                        for v in values if ids and not isinstance(v, str) and not stands_there(abs(v), there))


def used_ids():
    """Beside figures, and in the list."""
    beside = {i for e in EXPERIMENTS for h in e.held for i in re.findall(r"\b[FLWRBX]\d+\b", h.ids)}
    return beside, {i for ids, _ in NOT_REPRODUCED for i in ids.split()}


def wrong_ids(text):
    there, (beside, listed) = set(published_rows(text)), used_ids()
    yield from (f"{i} of published.md is neither beside a figure nor among those not reproduced" for i in sorted(there - beside - listed))
    yield from (f"{i} is not in published.md" for i in sorted((beside | listed) - there))
    yield from (f"{i} is beside a figure and among those not reproduced" for i in sorted(beside & listed))


def wrong_results(kept):
    for e in EXPERIMENTS:
        found = {key: k for key, k in kept.items() if key.split("@")[0] == e.name}
        if not found:
            yield f"{e.name}: was never run: tools/experiments.py {e.name}"
        for key, k in found.items():
            if (k["command"], k["before"]) != (e.command, list(e.before)):
                yield f"{key}: the table is of `{k['command']}`, the list has `{e.command}`: tools/experiments.py {e.name}"
            yield from (f"{key}: {wrong}" for wrong in wrong_flags(k["command"], k["output"]))
            try:
                list(held_rows(e, Output(k["output"]), quick=False))
            except LookupError as failed:
                yield f"{key}: {failed}"
    names = {e.name for e in EXPERIMENTS}
    yield from (f"{key}: kept, but there is no such experiment" for key in kept if key.split("@")[0] not in names)


def wrong_choice():
    for page, rows in ON_PAGES.items():
        if len(rows) > MOST_ROWS:
            yield f"{page}: {len(rows)} rows are chosen, a page shows at most {MOST_ROWS}"


def with_outputs(text, kept):
    """A page with what the experiments printed that it names in code: figures of its prose may come from there."""
    named = [k["output"] for key, k in kept.items() if f"`{key.split('@')[0]}`" in text]
    return text + "".join(f"\n```\n{output}\n```\n" for output in named)


def wrong_pages(kept, pages):
    for name, text in pages.items():
        try:
            if written(text, kept) != text:
                yield f"{name}: a table is not what was kept: tools/experiments.py --write"
        except LookupError as failed:
            yield f"{name}: {failed}"


def check(published):
    kept, pages = read_kept(), {str(p.relative_to(ROOT)): p.read_text() for p in PAGES}
    wrong = [*wrong_results(kept), *wrong_choice(), *wrong_pages(kept, pages),
             *measured.wrong_figures({name: with_outputs(text, kept) for name, text in pages.items()})]
    if published.exists():
        text = published.read_text()
        wrong.extend([*wrong_ids(text), *wrong_published(published_rows(text))])
    else:
        print(f"{published} is not at hand: its ids are not checked")
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(kept)} tables, {len(wrong)} wrong")
    return 1 if wrong else 0


def list_all(kept):
    """Names, seconds of the runs that are kept, and commands."""
    for e in EXPERIMENTS:
        seconds = sum(k["seconds"] for key, k in kept.items() if key.split("@")[0] == e.name)
        print(f"{e.name:24}{seconds:8.0f} s  {e.command}")
    print(f"{'all':24}{sum(k['seconds'] for k in kept.values()):8.0f} s")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--quire", default=str(ROOT / "build" / "quire"), help="the program (build/quire)")
    p.add_argument("--published", help="published.md (that of QUIRE_SHARED or ../shared, if there is one)")
    for what in ("quick", "write", "check", "list", "show"):
        p.add_argument(f"--{what}", action="store_true")
    o = p.parse_args()
    unknown = set(o.names) - {e.name for e in EXPERIMENTS} - ({NO_FIGURE} if o.show else set())
    if unknown:
        sys.exit(f"{', '.join(sorted(unknown))}: no such experiment; --list names them")
    if o.list:
        return list_all(read_kept())
    if o.show:
        kept = read_kept()
        print("\n".join(f"## {name}\n\n{block(name, kept)}" for name in o.names or [e.name for e in EXPERIMENTS]), end="")
        return 0
    if o.check:
        if o.published and not pathlib.Path(o.published).exists():
            sys.exit(f"--published {o.published}: there is no such file")
        return check(pathlib.Path(o.published or PUBLISHED))
    kept, failures = (read_kept(), []) if o.write else run_all(o.names, pathlib.Path(o.quire), o.quick)
    if o.quick:
        write_quick(kept, failures)
    else:
        write_pages(kept)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
