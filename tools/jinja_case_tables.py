#!/usr/bin/env python3
"""Writes src/jinja/jinja_case_tables.h: what Python's string methods know of characters beyond utf8proc."""
import sys
import unicodedata

ALL = range(0x110000)


def ranges(test):
    """The ranges of code points that pass."""
    found = []
    for c in ALL:
        if 0xD800 <= c < 0xE000 or not test(chr(c)):
            continue
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def write_ranges(name, what, found):
    print(f"/* {what} */\nstatic const case_range {name}[] = {{")
    line = "   "
    for low, high in found:
        item = f" {{0x{low:x}, 0x{high:x}}},"
        if len(line) + len(item) > 138:
            print(line)
            line = "   "
        line += item
    print(line + "\n};\n")


def write_expansions():
    print("/* Characters whose upper or title case is several characters: both, each ended by 0 or the array. Ascending. */")
    print("static const case_expansion case_expansions[] = {")
    for c in ALL:
        upper, title = chr(c).upper(), chr(c).title()
        if len(upper) > 1 or len(title) > 1:
            parts = ["{" + ", ".join(f"0x{ord(x):x}" for x in s) + "}" for s in (upper, title)]
            print(f"    {{0x{c:x}, {parts[0]}, {parts[1]}}},")
    print("};\n")


def main():
    cat = unicodedata.category
    print("/* Case tables: what Python's methods of strings know of characters beyond their general categories and simple mappings.\n"
          " * Made by tools/jinja_case_tables.py. */")
    print("#ifndef JINJA_JINJA_CASE_TABLES_H\n#define JINJA_JINJA_CASE_TABLES_H\n\n#include <stdint.h>\n")
    print("typedef struct case_range {\n    int32_t low, high;\n} case_range;\n")
    print("typedef struct case_expansion {\n    uint16_t from, upper[3], title[3];\n} case_expansion;\n")
    write_ranges("other_lower", "Lower case, and not of category Ll.", ranges(lambda s: s.islower() and cat(s) != "Ll"))
    write_ranges("other_upper", "Upper case, and not of category Lu.", ranges(lambda s: s.isupper() and cat(s) != "Lu"))
    write_ranges("other_digit", "Digits that are not of category Nd.", ranges(lambda s: s.isdigit() and cat(s) != "Nd"))
    write_ranges("other_numeric", "Numeric characters that are not of a category N*.", ranges(lambda s: s.isnumeric() and cat(s)[0] != "N"))
    write_expansions()
    print("#endif")


if __name__ == "__main__":
    sys.exit(main())
