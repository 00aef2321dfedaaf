// What kind of character a code point is: the classes that pre-tokenizer rules speak of (\p{L}, \p{N}, \p{M}, \p{P},
// \p{S}, \s), after Unicode 15.1. A constant table of 40 kB, made by tools/make_unicode_tables.py.
#pragma once

#include <cstdint>

namespace zinc {

// A code point has one of these, or none (controls, format characters, unassigned). White space has only kSpace.
enum UnicodeClass : uint8_t { kLetter = 1, kNumber = 2, kMark = 4, kPunctuation = 8, kSymbol = 16, kSpace = 32 };

constexpr char32_t kUnicodeCodes = 0x110000;
constexpr char32_t kUnicodeBlock = 128;
extern const uint8_t kUnicodeBlockOf[kUnicodeCodes / kUnicodeBlock];
extern const uint8_t kUnicodeBlocks[];

inline uint8_t unicode_class(char32_t code) {
  if (code >= kUnicodeCodes) return 0;
  return kUnicodeBlocks[kUnicodeBlockOf[code / kUnicodeBlock] * kUnicodeBlock + code % kUnicodeBlock];
}

}  // namespace zinc
