#!/usr/bin/env python3
"""Writes unicode_ranges.inc: the classes of characters that split patterns ask for, in Unicode 16.

Unicode 16 is what Oniguruma in PyPI tokenizers 0.23 knows: its \\p{L}, \\p{N} and \\s were compared character by character.
Usage: pip install unicodedata2==16.0.0; make_unicode_ranges.py > unicode_ranges.inc
"""
import sys

import unicodedata2

assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
LETTER, NUMBER, SPACE, WORD = 1, 2, 4, 8
# White_Space (PropList.txt)
SPACES = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
# Other_Alphabetic outside of letters, marks and numbers, and Join_Control (PropList.txt): part of a word by UTS 18, annex C
WORDS = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A), *range(0x1F170, 0x1F18A), 0x200C, 0x200D}


def bits(code):
    category = unicodedata2.category(chr(code))
    found = {"L": LETTER | WORD, "N": NUMBER, "M": WORD}.get(category[0], 0)
    if category in ("Nd", "Nl", "Pc") or code in WORDS:
        found |= WORD
    return found | (SPACE if code in SPACES else 0)


ranges = []
for code in range(0x110000):
    value = bits(code)
    if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == value:
        ranges[-1][1] = code
    elif value:
        ranges.append([code, code, value])
out = sys.stdout
out.write("// Made by make_unicode_ranges.py from Unicode 16.0: first and last code point, sum of 1 letter, 2 number, 4 space, 8 word.\n")
line = ""
for first, last, value in ranges:
    item = f"{{0x{first:X}, 0x{last:X}, {value}}},"
    if len(line) + len(item) > 118:
        out.write(line.rstrip() + "\n")
        line = ""
    line += item + " "
out.write(line.rstrip() + "\n")
