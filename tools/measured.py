"""Finds measured figures in pages that no command prints.

In prose, a figure with a unit must stand in a table that a tool writes or in a block of code, of its page or of one that its paragraph links to, or
its paragraph must name the command that prints it, a test that holds it, or the file that keeps it, or its sentence must say that it is published or
given (a goal, a limit). A table of measurements that is written by hand must have the file that keeps its run named in its section (from heading to heading).
"""
import re

UNITS = r"(?:ms|us|µs|ns|[KMG]i?B/s|GOP/s|G?FLOP/s|tokens/s|requests/s|req/s)"
FIGURE = re.compile(rf"(?<![\w.,])(\d[\d,.]*)(?:\s?{UNITS}(?![\w/])|\s?%|\s(?:percent|per cent)\b|\stimes\s(?:as|the|that|those|faster|slower|more|less|longer|shorter)\b)"
                    r"|(?<![\w.,])(\d+\.\d+)\stimes\b")
COMMAND = re.compile(r"quire\s(?:bench|demo|sim|perplexity|inspect)\b|quire-check\b|\btools/\w+\.(?:py|sh)\b|`make \w+|\btests/\w+|\w+_test_\w+")
GIVEN = re.compile(r"\b(?:published|the paper|goals?|bounds:|at most|at least|by default)(?!\w)", re.I)
SENTENCE_END = re.compile(r"[.!?]\s+(?=[A-Z`*(])")
KEPT = re.compile(r"`bench/results/[\w.-]+`")
WRITTEN = re.compile(r"<!-- (?:table|figures): \S+ -->.*?<!-- end of (?:table|figures) -->\n?", re.S)
FENCED = re.compile(r"^```.*?^```\s*$", re.S | re.M)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
TABLE = re.compile(r"(?:^\|.*\n)+", re.M)
LINK = re.compile(r"\]\(([\w./-]+\.md)(?:#[\w-]*)?\)")


def prose(text):
    return INDENTED.sub("", FENCED.sub("", WRITTEN.sub("", text)))


def sections(text):
    """(heading, body) from heading to heading."""
    heading, body, is_code = "", [], False
    for line in text.splitlines(keepends=True):
        is_code ^= line.startswith("```")
        if line.startswith("#") and not is_code:
            yield heading, "".join(body)
            heading, body = line.strip("# \n"), []
        else:
            body.append(line)
    yield heading, "".join(body)


def shown(text):
    """What tools wrote into a page, and its code."""
    return "\n".join(WRITTEN.findall(text) + FENCED.findall(text) + INDENTED.findall(text))


def measured_title(table):
    """The first title with a unit over numbers; None: not a table of measurements."""
    head, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
    for k, title in enumerate(head):
        cells = [row[k] for row in rows[1:] if k < len(row)]
        if re.search(rf"(?<!\w){UNITS}(?![\w/])", title) and sum(bool(re.match(r"[-+]?\d", cell)) for cell in cells) >= 2:
            return title
    return None


def wrong_tables(body):
    for table in TABLE.findall(prose(body)):
        title = measured_title(table)
        if title is not None and not KEPT.search(body):
            yield f"a table with {title!r} is written by hand, and no file of bench/results is named"


def sentence_around(text, start, end):
    ends = [m.end() for m in SENTENCE_END.finditer(text)]
    return text[max((e for e in ends if e <= start), default=0):min((e for e in ends if e >= end), default=len(text))]


def wrong_paragraphs(body, seen):
    """seen: from the names of links in a paragraph to what is shown there."""
    for paragraph in TABLE.sub("\n", prose(body)).split("\n\n"):
        if COMMAND.search(paragraph) or KEPT.search(paragraph):
            continue
        known = seen(LINK.findall(paragraph))
        for found in FIGURE.finditer(paragraph):
            number = (found[1] or found[2]).rstrip(".,")
            is_given = GIVEN.search(sentence_around(paragraph, found.start(), found.end()))
            if not is_given and not re.search(rf"(?<![\d.,]){re.escape(number)}(?!\d|[.,]\d)", known):
                near = " ".join(paragraph[max(0, found.start() - 50):found.end() + 20].split())
                yield f"no command is named that prints {found[0]!r}, and no table there has it: .. {near} .."


def wrong_figures(pages):
    """What is wrong in pages by name (their path, relative to the root)."""
    for name, text in pages.items():
        folder = "docs/" if name.startswith("docs/") else ""

        def seen(links, text=text, folder=folder):
            linked = [re.sub(r"^docs/\.\./", "", folder + link) for link in links]
            return shown(text) + "".join(shown(pages[link]) for link in linked if link in pages)

        for heading, body in sections(text):
            yield from (f"{name}, {heading!r}: {wrong}" for wrong in [*wrong_tables(body), *wrong_paragraphs(body, seen)])
