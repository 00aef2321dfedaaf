// Text normalization before pre-tokenization and merging.
#pragma once

#include <string>
#include <string_view>

namespace zinc {

// Lenient UTF-8 decoding as in llama.cpp: overlong encodings become their character, surrogates stay, and each invalid
// byte becomes U+FFFD. Returns `text` if nothing changes, else a view of `buffer`.
std::string_view repair_utf8(std::string_view text, std::string& buffer);

// Whether repair_utf8 would not change `text`.
bool is_loosely_valid_utf8(std::string_view text);

// Whether `character` is a lead byte with all its continuation bytes.
bool is_whole_char(std::string_view character);

// SentencePiece whitespace: U+2581 becomes a space. Returns `text` or a view of `buffer`.
std::string_view unescape_whitespace(std::string_view text, std::string& buffer);
std::string escape_whitespace(std::string_view text);  // every space becomes U+2581

// The length of a character by its lead byte; 1 for a stray continuation byte.
inline size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace zinc
