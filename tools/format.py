#!/usr/bin/env python3
"""Formats C files in place: comments reflowed to 90 columns, code by clang-format (.clang-format: 110 columns).

  format.py FILE..

A comment at the end of a line that would pass 110 columns moves to a line of its own before it. Figures, tables and lists
in comments (indented text, runs of spaces, dashes) keep their lines. Only white space, comments and the order of includes
change; --check-tokens BEFORE AFTER exits 1 where two versions of a file differ in more."""
import re
import subprocess
import sys

CODE, COMMENT = 110, 90


def wrap(words, first, rest, limit):
    """Lines of words, each line with its prefix and at most `limit` columns where words allow it."""
    lines, line, prefix = [], "", first
    for word in words:
        if line and len(prefix) + len(line) + 1 + len(word) > limit:
            lines.append(prefix + line)
            line, prefix = word, rest
        else:
            line = f"{line} {word}" if line else word
    return lines + [prefix + line]


ITEM = re.compile(r"( *(?:[-*+] |\d+[.)] |(?:\S+ ){0,3}?\S+ {2,}| ))(\S(?:(?! {2}).)*)$")


def is_figure(text):
    return bool(re.search(r"\S {2,}\S", text)) or text.startswith((" ", "- ", "* ", "+", "|"))


def paragraphs(texts):
    """Groups (first prefix, rest prefix, words) of lines that flow together, or (None, None, line) of one that is kept. A line
    ends its group where the first word of the next would have fitted. An item of a list takes the lines at its own depth."""
    width, i = max(len(t) for t in texts), 0
    while i < len(texts):
        text = texts[i]
        i += 1
        if is_figure(text):
            item = ITEM.match(text)
            if item is None or "->" in text or "|" in text or len(item.group(1)) > 30:
                yield None, None, text
                continue
            first, words = item.group(1), item.group(2).split()
            rest = " " * len(first)
            while first.strip() and i < len(texts) and re.match(re.escape(rest) + r"\S(?!.*\S {2,}\S)", texts[i]):
                words += texts[i].split()
                i += 1
            yield first, rest, words
            continue
        words = text.split()
        while i < len(texts) and text and texts[i] and not is_figure(texts[i]) and \
                len(text) + 1 + len(texts[i].split()[0]) > width:
            text = texts[i]
            words += text.split()
            i += 1
        yield "", "", words


def reflow(block):
    """The lines of a comment that stands alone, reflowed where one of them is too long."""
    if all(len(line) <= COMMENT for line in block) or any(line.endswith("\\") for line in block):
        return block
    indent = block[0][: len(block[0]) - len(block[0].lstrip())]
    texts = []
    for i, line in enumerate(block):
        text = line.strip()
        if i == 0:
            text = text[2:]
        elif text.startswith("*") and not text.startswith("*/"):
            text = text[1:]
        elif i:
            text = " " + line[len(indent) + 3:].rstrip() if line.startswith(indent + "   ") else " " + text
        if i == len(block) - 1:
            text = text[: text.rindex("*/")].rstrip()
        texts.append(text[1:] if text.startswith(" ") else text)
    if not texts[-1] and len(texts) > 1:
        texts.pop()
    lines, prefix = [], indent + " * "
    groups = list(paragraphs(texts))
    for n, (first, rest, words) in enumerate(groups):
        if first is None:
            lines.append((prefix + words).rstrip())
            continue
        flow = wrap(words, prefix + first, prefix + rest, COMMENT)
        if n == len(groups) - 1 and len(flow[-1]) + 3 > COMMENT:
            flow = wrap(words, prefix + first, prefix + rest, COMMENT - 3)
        lines += [line.rstrip() for line in flow]
    lines[0] = indent + "/* " + lines[0][len(indent) + 3:]
    lines[-1] += " */"
    return lines


def trailing(line):
    """(code, comment) of a line that has code and ends with a comment or begins one; else None."""
    match = re.match(r"^(\s*[^\s/].*?)\s*(/\*((?!\*/).)*(\*/)?)$", line)
    if match is None or line.lstrip().startswith(("*", "/*")) or match.group(1).count('"') % 2:
        return None
    return match.group(1), match.group(2)


def move_long(lines):
    """Comments at the ends of lines that are too long, moved before them."""
    out, i = [], 0
    while i < len(lines):
        parts = trailing(lines[i])
        last = i
        if parts is not None:
            while not lines[last].endswith("*/") and last + 1 < len(lines):
                last += 1
        macro = lines[i].endswith("\\") or (i > 0 and lines[i - 1].endswith("\\"))
        if parts is None or max(len(line) for line in lines[i:last + 1]) <= CODE or macro:
            out.append(lines[i])
            i += 1
            continue
        code, comment = parts
        text = " ".join([comment] + [re.sub(r"^\*(?!/) ?", "", line.strip()) for line in lines[i + 1:last + 1]])
        indent = code[: len(code) - len(code.lstrip())]
        if code.lstrip().startswith("}") and code.rstrip().endswith("{"):
            out += [code, indent + "    " + text]
        else:
            out += [indent + text, code]
        i = last + 1
    return out


def comments(lines):
    """All lines, with the comments that stand alone reflowed."""
    out, i, off = [], 0, False
    while i < len(lines):
        line = lines[i].strip()
        off = (off or "clang-format off" in line) and "clang-format on" not in line
        last = i
        if line.startswith("/*") and not off:
            while "*/" not in lines[last] and last + 1 < len(lines):
                last += 1
        if line.startswith("/*") and not off and lines[last].rstrip().endswith("*/") and \
                lines[last].count("*/") == 1 and sum(part.count("/*") for part in lines[i:last + 1]) == 1:
            out += reflow(lines[i:last + 1])
        else:
            out += lines[i:last + 1]
        i = last + 1
    return out


def clang(path):
    subprocess.run(["clang-format", "-i", path], check=True)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


def format_file(path):
    before = read(path)
    if "Generated by" in before[:400] and "do not edit" in before[:400].lower():
        return
    write(path, comments(move_long(before.split("\n"))))
    clang(path)
    for _ in range(2):  # code that clang-format broke can leave comments that are too long now
        text = read(path)
        lines = comments(move_long(text.split("\n")))
        if "\n".join(lines) == text:
            break
        write(path, lines)
        clang(path)


TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\w+|\s+|.', re.S)


def tokens(text):
    includes = sorted(re.findall(r"^#include .*?(?=\s*(?:/\*.*)?$)", text, re.M))
    text = re.sub(r"\\\n", " ", re.sub(r"^#include .*$", "", text, flags=re.M))
    out, directive = [], False
    for token in TOKEN.findall(text):
        if directive and (token.startswith("//") or token.isspace()) and "\n" in token:
            out.append("\n")
            directive = False
        if token.isspace() or token.startswith(("/*", "//")):
            continue
        directive = directive or token == "#"
        if token[0] == '"' and out and out[-1][0] == '"':
            out[-1] = out[-1][:-1] + token[1:]
        else:
            out.append(token)
    return includes, out


def main():
    if sys.argv[1:2] == ["--check-tokens"]:
        sys.exit(tokens(read(sys.argv[2])) != tokens(read(sys.argv[3])))
    for path in sys.argv[1:]:
        format_file(path)


if __name__ == "__main__":
    main()
