#!/usr/bin/env python3
"""Writes the character tables of src/text that no library has.

    python3 tools/unicode_tables.py scripts > src/text/script_table.inc
    python3 tools/unicode_tables.py inert > src/text/inert_table.inc

Needs the packages tokenizers (the reference) and regex.

scripts: the scripts that the pre-tokenizer UnicodeScripts distinguishes. Names come from regex; whether a character counts as no script at
all is asked of the reference.

inert: the characters that the reference's normal forms leave alone, while newer Unicode tables decompose, compose or reorder them. The
reference's tables are those of Unicode 9; what was assigned later has no decomposition and combining class 0 there.
"""
import ctypes
import sys

import regex
from tokenizers import normalizers, pre_tokenizers

LAST = 0x110000


def is_scalar(c):
    return not 0xD800 <= c <= 0xDFFF


def runs(values):
    """(first, value) for each run of equal values."""
    last = None
    for c, v in enumerate(values):
        if v != last:
            yield c, v
            last = v


def print_items(items):
    line = ""
    for item in items:
        if len(line) + len(item) + 2 > 136:
            print("    " + line.rstrip())
            line = ""
        line += item + ", "
    print("    " + line.rstrip())


def print_scripts():
    pre = pre_tokenizers.UnicodeScripts()
    names = sorted(n for n in regex._regex_core.PROPERTIES["SCRIPT"][1] if n not in ("UNKNOWN", "ZZZZ"))
    numbers, found = {}, [0] * LAST
    every = "".join(chr(c) for c in range(LAST) if is_scalar(c))
    for name in names:
        try:
            pattern = regex.compile(r"\p{Script=%s}" % name)
        except regex.error:
            continue
        hits = [ord(m) for m in pattern.findall(every)]
        if hits and found[hits[0]] == 0:
            numbers[name] = len(numbers) + 1
            for c in hits:
                found[c] = numbers[name]
    han, kana = found[ord("漢")], {found[ord("あ")], found[ord("ア")]}
    found = [han if s in kana else s for s in found]
    found[0x30FC] = han
    for c in filter(is_scalar, range(LAST)):
        if found[c] and all(len(pre.pre_tokenize_str(s + chr(c) + s)) == 1 for s in "aя"):
            found[c] = 0
    correct_scripts(pre, found)
    print("/* Made by tools/unicode_tables.py. Where a run of characters of one script begins, times 256, and the script's number; 0: none. */")
    print_items("0x%xu" % (c << 8 | s) for c, s in runs(found))


def correct_scripts(pre, found):
    """Some characters have changed their script since the reference's tables."""
    samples = {}
    for c in range(LAST):
        if found[c] and found[c] not in samples:
            samples[found[c]] = chr(c)

    def fits(script, c):
        return len(pre.pre_tokenize_str(samples[script] + chr(c))) == 1

    for c in filter(is_scalar, range(LAST)):
        if found[c] and not fits(found[c], c):
            found[c] = next(s for s in samples if fits(s, c))


def utf8proc_form(name):
    """The normal form as the C library has it, which the program uses."""
    call = getattr(ctypes.CDLL("libutf8proc.so.2"), "utf8proc_" + name)
    call.restype = ctypes.c_void_p

    def form(text):
        at = call(text.encode())
        out = ctypes.string_at(at).decode()
        libc.free(ctypes.c_void_p(at))
        return out

    libc = ctypes.CDLL(None)
    return form


def print_inert():
    forms = [(utf8proc_form(f), getattr(normalizers, f)()) for f in ("NFC", "NFD", "NFKC", "NFKD")]
    parts, inert = set(), [0] * (LAST + 1)
    for c in filter(is_scalar, range(1, LAST)):
        for probe in (chr(c), "a\u0301" + chr(c) + "\u0316"):
            inert[c] |= any(own(probe) != reference.normalize_str(probe) for own, reference in forms)
        if inert[c]:
            parts |= {ord(p) for p in forms[1][0](chr(c))}
    for c in parts:  # a new composition has a part that is new, too; only that one may be left alone
        inert[c] |= c > 0x10FFF and forms[1][0](chr(c)) == chr(c)
    print("/* Made by tools/unicode_tables.py. First and last characters of runs that the reference's normal forms leave alone. */")
    ends = list(runs([int(v) for v in inert]))
    print_items("{0x%x, 0x%x}" % (c, ends[i + 1][0] - 1) for i, (c, v) in enumerate(ends) if v)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("scripts", "inert"):
        sys.exit(__doc__)
    print_scripts() if sys.argv[1] == "scripts" else print_inert()
