// Strict UTF-8: overlong encodings, surrogates and values above U+10FFFF are invalid. Invalid input is replaced by
// U+FFFD once per maximal subpart (Unicode 15, section 3.9, tables 3-8 to 3-11), as browsers and Python do.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zinc {

constexpr char32_t kReplacement = 0xFFFD;

struct Utf8Char {
  char32_t code;  // kReplacement where the bytes are invalid
  int n_bytes;    // bytes consumed, at least 1
  bool valid;
};

// The character at the start of `text`. REQUIRES: !text.empty().
Utf8Char next_utf8(std::string_view text);

// Length of the incomplete but valid character at the end of `text` (0 to 3 bytes).
size_t incomplete_utf8_suffix(std::string_view text);

bool is_valid_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t code);  // REQUIRES: code is a Unicode scalar value
std::string replace_invalid_utf8(std::string_view text);

}  // namespace zinc
