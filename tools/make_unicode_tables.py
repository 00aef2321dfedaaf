#!/usr/bin/env python3
"""Writes src/text/unicode_category_table.cc: the category of every code point, as a two-stage table.

Unicode 15.1. Python's own data may be older (3.11 and 3.12 have 14.0 and 15.0): the additions of 15.0 and 15.1 are listed below,
so that every Python from 3.11 to 3.13 writes the same file. Usage: make_unicode_tables.py > src/text/unicode_category_table.cc
"""
import unicodedata

LETTER, NUMBER, MARK, PUNCTUATION, SYMBOL, SPACE = 1, 2, 4, 8, 16, 32
CLASS_OF = {"L": LETTER, "N": NUMBER, "M": MARK, "P": PUNCTUATION, "S": SYMBOL}
N_CODES = 0x110000
BLOCK = 128
WHITE_SPACE = [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]

# Assigned in Unicode 15.0 and 15.1: first, last, class.
ADDED = [
    (0x0CF3, 0x0CF3, MARK), (0x0ECE, 0x0ECE, MARK), (0x10EFD, 0x10EFF, MARK), (0x11241, 0x11241, MARK),
    (0x11F00, 0x11F01, MARK), (0x11F03, 0x11F03, MARK), (0x11F34, 0x11F3A, MARK), (0x11F3E, 0x11F42, MARK),
    (0x13440, 0x13440, MARK), (0x13447, 0x13455, MARK), (0x1E08F, 0x1E08F, MARK), (0x1E4EC, 0x1E4EF, MARK),
    (0x2FFC, 0x2FFF, SYMBOL), (0x31EF, 0x31EF, SYMBOL), (0x1F6DC, 0x1F6DC, SYMBOL), (0x1F774, 0x1F776, SYMBOL),
    (0x1F77B, 0x1F77F, SYMBOL), (0x1F7D9, 0x1F7D9, SYMBOL), (0x1FA75, 0x1FA77, SYMBOL), (0x1FA87, 0x1FA88, SYMBOL),
    (0x1FAAD, 0x1FAAF, SYMBOL), (0x1FABB, 0x1FABD, SYMBOL), (0x1FABF, 0x1FABF, SYMBOL), (0x1FACE, 0x1FACF, SYMBOL),
    (0x1FADA, 0x1FADB, SYMBOL), (0x1FAE8, 0x1FAE8, SYMBOL), (0x1FAF7, 0x1FAF8, SYMBOL),
    (0x1123F, 0x11240, LETTER), (0x11F02, 0x11F02, LETTER), (0x11F04, 0x11F10, LETTER), (0x11F12, 0x11F33, LETTER),
    (0x1342F, 0x1342F, LETTER), (0x13441, 0x13446, LETTER), (0x1B132, 0x1B132, LETTER), (0x1B155, 0x1B155, LETTER),
    (0x1DF25, 0x1DF2A, LETTER), (0x1E030, 0x1E06D, LETTER), (0x1E4D0, 0x1E4EB, LETTER), (0x2B739, 0x2B739, LETTER),
    (0x2EBF0, 0x2EE5D, LETTER), (0x31350, 0x323AF, LETTER),
    (0x11B00, 0x11B09, PUNCTUATION), (0x11F43, 0x11F4F, PUNCTUATION),
    (0x11F50, 0x11F59, NUMBER), (0x1D2C0, 0x1D2D3, NUMBER), (0x1E4F0, 0x1E4F9, NUMBER),
]


def classes():
    of = bytearray(CLASS_OF.get(unicodedata.category(chr(code))[0], 0) for code in range(N_CODES))
    for first, last, value in ADDED:
        for code in range(first, last + 1):
            of[code] = value
    for code in WHITE_SPACE:
        of[code] = SPACE
    return bytes(of)


def print_array(head, values):
    print(head + " = {")
    line = "   "
    for value in values:
        word = f" {value},"
        if len(line) + len(word) > 120:
            print(line)
            line = "   "
        line += word
    print(line + "\n};")


def main():
    of = classes()
    blocks, index = {}, []
    for first in range(0, N_CODES, BLOCK):
        index.append(blocks.setdefault(of[first:first + BLOCK], len(blocks)))
    assert len(blocks) <= 256
    print("// Data table, written by tools/make_unicode_tables.py (Unicode 15.1). Do not edit.")
    print('#include "text/unicode_category.h"\n\nnamespace zinc {\n\n// clang-format off')
    print_array(f"const uint8_t kUnicodeBlockOf[{len(index)}]", index)
    print_array(f"const uint8_t kUnicodeBlocks[{len(blocks) * BLOCK}]", b"".join(blocks))
    print("// clang-format on\n\n}  // namespace zinc")


main()
