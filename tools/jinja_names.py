#!/usr/bin/env python3
"""src/jinja/jinja_names_table.h: names of the characters that texts write by name, "\\N{BULLET}", from Python's unicodedata.

    tools/jinja_names.py            writes it again
    tools/jinja_names.py --check    compares only; exit status 1 where it differs
"""
import pathlib
import sys
import unicodedata

PAGE = pathlib.Path(__file__).resolve().parent.parent / "src/jinja/jinja_names_table.h"
# Latin, Greek, punctuation, currencies, letter-like symbols, arrows, mathematics, technical, shapes, dingbats, emoji.
RANGES = [(0x20, 0x7e), (0xa0, 0x17f), (0x370, 0x3ff), (0x2000, 0x206f), (0x20a0, 0x20c0), (0x2100, 0x214f), (0x2190, 0x22ff), (0x2300, 0x23ff),
          (0x2500, 0x27bf), (0x3000, 0x301f), (0xfff9, 0xfffd), (0x1f300, 0x1f64f), (0x1f680, 0x1f6ff), (0x1f900, 0x1f9ff)]
COLUMNS = 136


def runs():
    """Runs of code points that all have names."""
    for low, high in RANGES:
        first, names = low, []
        for c in range(low, high + 2):
            name = unicodedata.name(chr(c), "") if c <= high else ""
            if name:
                names.append(name)
            elif names:
                yield first, names
            if not name:
                first, names = c + 1, []


def page():
    lines = ['/* Made by tools/jinja_names.py. Names of characters, each run from its first code point on, a bar behind each. */', '#ifndef JINJA_JINJA_NAMES_TABLE_H',
             '#define JINJA_JINJA_NAMES_TABLE_H', '', '#include <stdint.h>', '', 'static const struct {', '    int32_t first;', '    const char *names;', '} character_names[] = {']
    for first, names in runs():
        line = f'    {{0x{first:x}, "'
        for name in names:
            if len(line) + len(name) + 2 > COLUMNS:
                lines.append(line + '"')
                line = '     "'
            line += name + "|"
        lines.append(line + '"},')
    return "\n".join(lines + ["};", "", "#endif", ""])


def main():
    text = page()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text() == text else f"{PAGE} is not what {sys.argv[0]} writes")
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
