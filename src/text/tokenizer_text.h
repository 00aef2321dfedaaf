// What is done to text before it is cut and merged.
#pragma once

#include <string>
#include <string_view>

namespace zinc {

// UTF-8 as llama.cpp reads it: overlong forms become the character they mean, a surrogate stays, and each byte that
// belongs to nothing becomes U+FFFD. Returns `text` itself if it is already so, else a view of `buffer`.
std::string_view repair_utf8(std::string_view text, std::string& buffer);

// Whether repair_utf8 would leave `text` as it is.
bool is_sound_utf8(std::string_view text);

// Whether `character` is a lead byte with as many continuation bytes as it asks for.
bool is_whole_char(std::string_view character);

// SentencePiece has one sign for a space and for U+2581: both become a space. Returns `text` or a view of `buffer`.
std::string_view unify_spaces(std::string_view text, std::string& buffer);
std::string mark_spaces(std::string_view text);  // the other way: every space becomes U+2581

// The length of the character a byte begins, whatever follows; 1 for a stray continuation byte.
inline size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace zinc
