"""Finds measured figures in pages that no command prints.

In prose, a figure with a unit must stand in a table that a tool writes or in a block of code, of its page or of one that its paragraph links to, or
its paragraph must name the command that prints it, a test that holds it, or the file that keeps it, or its sentence must say that it is published or
given (a goal, a limit). A comparison in words (twice as fast, half the time, a third less memory) needs the same, or a table that a tool writes or the
file that keeps its run in its section (from heading to heading) or on a page that its paragraph links to, if it does not follow from counting (COUNTED).
A table of measurements that is written by hand must have the file that keeps its run named in its section.
"""
import re

UNITS = r"(?:ms|us|µs|ns|[KMG]i?B/s|GOP/s|G?FLOP/s|tokens/s|requests/s|req/s)"
FIGURE = re.compile(rf"(?<![\w.,])(\d[\d,.]*)(?:\s?{UNITS}(?![\w/])|\s?%|\s(?:percent|per cent)\b|\stimes\s(?:as|the|that|those|faster|slower|more|less|longer|shorter)\b)"
                    r"|(?<![\w.,])(\d+\.\d+)\stimes\b")
COUNT = r"(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|sixty|eighty|(?:(?:a|one)\s)?(?:hundred|thousand))"
PART = (r"(?:(?:(?:a|one)\s)?half|(?:a|an|one|two|three|four|five|six|seven|eight|nine)\s"
        r"(?:thirds?|quarters?|(?:fif|six|seven|eigh|nin|ten|eleven|twelf|twentie|thirtie|fiftie|hundred|thousand)ths?))")
MANY = rf"(?:twice|{COUNT}\stimes)"
QUANTITY = (r"(?:time|speed|pace|rates?|throughput|latency|bandwidth|memory|tokens|requests|costs?|work|products|bytes|traffic|power|room|space)")
WORSE = r"(?:faster|slower|quicker|longer|shorter|larger|smaller|bigger|higher|lower|more|less|fewer|cheaper|dearer)"
WORDED = re.compile(
    rf"\b(?:(?:{MANY}|{PART})\sas\s(?:fast|slow|quick|long|short|large|small|much|many|high|low|cheap|dear|costly|expensive)\w*"
    rf"|(?:{COUNT}\stimes|{PART})\s{WORSE}"
    rf"|(?:{MANY}|{PART})\s(?:of\s)?(?:the|its|their|this|that|those|what|a)\s(?:[\w']+\s){{0,2}}?{QUANTITY}"
    rf"|(?:{MANY}|{PART})\s(?:of\s)?(?:that|those|what)"
    rf"|(?:halves|halved|doubles|doubled|triples|tripled|quadruples|quadrupled)\s(?:the|its|their)\s(?:[\w']+\s){{0,2}}?{QUANTITY}"
    rf"|{COUNT}fold)\b", re.I)
# Comparisons that are no results: a phrase as it stands in its page, and what it follows from.
COUNTED = {"twice as many entries as transfers can be under way": "the size that the ring is opened with"}
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


def near(paragraph, found):
    return " ".join(paragraph[max(0, found.start() - 50):found.end() + 20].split())


def is_given(paragraph, found):
    return GIVEN.search(sentence_around(paragraph, found.start(), found.end())) is not None


def is_counted(paragraph, found):
    """Whether it stands inside a phrase of COUNTED, however its lines are broken."""
    words = " ".join(paragraph[found.start():].split())
    return any(words.startswith(phrase) for phrase in COUNTED)


def wrong_words(paragraph, beside):
    """beside: the paragraph's section, and the pages that it links to."""
    if any(WRITTEN.search(text) or KEPT.search(text) for text in beside):
        return
    for found in WORDED.finditer(paragraph):
        if not is_given(paragraph, found) and not is_counted(paragraph, found):
            yield f"no command is named that prints {' '.join(found[0].split())!r}, and no table stands beside it: .. {near(paragraph, found)} .."


def wrong_numbers(paragraph, known):
    """known: what is shown on its page and on those that it links to."""
    for found in FIGURE.finditer(paragraph):
        number = (found[1] or found[2]).rstrip(".,")
        if not is_given(paragraph, found) and not re.search(rf"(?<![\d.,]){re.escape(number)}(?!\d|[.,]\d)", known):
            yield f"no command is named that prints {found[0]!r}, and no table there has it: .. {near(paragraph, found)} .."


def wrong_paragraphs(page, body, linked):
    """linked: from the names of links in a paragraph to the texts of those pages."""
    for paragraph in TABLE.sub("\n", prose(body)).split("\n\n"):
        if COMMAND.search(paragraph) or KEPT.search(paragraph):
            continue
        others = linked(LINK.findall(paragraph))
        yield from wrong_words(paragraph, [body, *others])
        yield from wrong_numbers(paragraph, "".join(shown(text) for text in [page, *others]))


def wrong_figures(pages):
    """What is wrong in pages by name (their path, relative to the root)."""
    for name, text in pages.items():
        folder = "docs/" if name.startswith("docs/") else ""

        def linked(links, folder=folder):
            return [pages[page] for page in (re.sub(r"^docs/\.\./", "", folder + link) for link in links) if page in pages]

        for heading, body in sections(text):
            yield from (f"{name}, {heading!r}: {wrong}" for wrong in [*wrong_tables(body), *wrong_paragraphs(text, body, linked)])
