// Building blocks of pre-tokenizer rules: reading characters, runs of a class, and the two ways a regular expression
// splits a text. Pointers are into UTF-8; lookahead stops at `end`, so a rule applied to a piece gets the piece's end.
// Invalid UTF-8 bytes are characters without a class.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/unicode_category.h"

namespace zinc {

struct Char {
  char32_t code;
  uint8_t unicode_class;
  uint8_t n_bytes;  // 0: end of text

  bool is(uint8_t mask) const { return (unicode_class & mask) != 0; }
  bool is_newline() const { return n_bytes == 1 && (code == '\n' || code == '\r'); }
  // Neither white space nor of the classes in `mask`. False at the end of the text.
  bool is_other_than(uint8_t mask) const { return n_bytes != 0 && (unicode_class & (mask | kSpace)) == 0; }
};

inline Char multibyte_char_at(const char* at, const char* end) {
  const auto byte = [at](int i) { return static_cast<char32_t>(static_cast<uint8_t>(at[i])); };
  const char32_t lead = byte(0);
  const int n_bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (n_bytes == 1 || end - at < n_bytes) return {kUnicodeCodes, 0, 1};
  char32_t code = lead & (0x7Fu >> n_bytes);
  for (int i = 1; i < n_bytes; ++i) code = (code << 6) | (byte(i) & 0x3Fu);
  return {code, unicode_class(code), static_cast<uint8_t>(n_bytes)};
}

inline Char char_at(const char* at, const char* end) {
  if (at >= end) return {0, 0, 0};
  const auto byte = static_cast<uint8_t>(*at);
  if (byte < 0x80) return {byte, kUnicodeBlocks[byte], 1};  // block 0 is ASCII
  return multibyte_char_at(at, end);
}

inline Char char_after(const char* at, const Char& c, const char* end) { return char_at(at + c.n_bytes, end); }

// The end of the run of characters for which member(Char) holds; may be `at`.
template <class Member>
const char* skip(const char* at, const char* end, Member member) {
  while (at < end) {
    const Char c = char_at(at, end);
    if (!member(c)) break;
    at += c.n_bytes;
  }
  return at;
}

inline const char* skip_class(const char* at, const char* end, uint8_t mask) {
  return skip(at, end, [mask](const Char& c) { return c.is(mask); });
}

inline const char* skip_newlines(const char* at, const char* end) {
  while (at < end && (*at == '\n' || *at == '\r')) ++at;
  return at;
}

// The end of a contraction ('s 't 'm 'd 're 've 'll) at `at`; nullptr if there is none.
inline const char* contraction_end(const char* at, const char* end, bool any_case) {
  if (end - at < 2 || *at != '\'') return nullptr;
  const auto letter = [=](int i) { return any_case ? static_cast<char>(at[i] | 0x20) : at[i]; };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if (end - at < 3) return nullptr;
  const char second = letter(2);
  const bool found =
      (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return found ? at + 3 : nullptr;
}

// \s+(?!\S)|\s+ : all white space but the last character, which joins the next word, unless it is the only one.
// With `newlines_first`, \s*[\r\n]+ is tried first. REQUIRES: white space at `at`.
inline const char* space_end(const char* at, const char* end, bool newlines_first) {
  const char* last = at;                // where the last character of the run begins
  const char* after_newline = nullptr;  // past the last \r or \n of the run
  const char* next = at;
  for (Char c = char_at(next, end); c.is(kSpace); c = char_at(next, end)) {
    last = next;
    next += c.n_bytes;
    if (c.is_newline()) after_newline = next;
  }
  if (newlines_first && after_newline) return after_newline;
  return next == end || last == at ? next : last;
}

// Emits consecutive matches that cover the text: match_end(at, end) returns the end of the match at `at`.
template <class MatchEnd, class Emit>
void for_each_match(std::string_view text, MatchEnd match_end, Emit emit) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const char* const next = match_end(at, end);
    emit(std::string_view(at, static_cast<size_t>(next - at)));
    at = next;
  }
}

// Emits matches and the text between them ("isolated" in HF tokenizers); match_end returns `at` if there is no match.
template <class MatchEnd, class Emit>
void isolate(std::string_view text, MatchEnd match_end, Emit emit) {
  const char* at = text.data();
  const char* const end = at + text.size();
  const char* gap = at;
  const auto emit_range = [&emit](const char* from, const char* to) {
    if (from < to) emit(std::string_view(from, static_cast<size_t>(to - from)));
  };
  while (at < end) {
    const char* const next = match_end(at, end);
    if (next == at) {
      at += char_at(at, end).n_bytes;
      continue;
    }
    emit_range(gap, at);
    emit_range(at, next);
    at = gap = next;
  }
  emit_range(gap, end);
}

// The end of the character at `at` if it is a member, else `at`.
template <class Member>
const char* one(const char* at, const char* end, Member member) {
  const Char c = char_at(at, end);
  return member(c) ? at + c.n_bytes : at;
}

// \s?[member]+ ; `at` if there is no match.
template <class Member>
const char* spaced_run(const char* at, const char* end, Member member) {
  const Char c = char_at(at, end);
  const char* const from = c.is(kSpace) ? at + c.n_bytes : at;
  const char* const next = skip(from, end, member);
  return next == from ? at : next;
}

// [0-9][0-9][0-9] ; `at` if there is no match.
inline const char* three_digits(const char* at, const char* end) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return end - at >= 3 && is_digit(at[0]) && is_digit(at[1]) && is_digit(at[2]) ? at + 3 : at;
}

}  // namespace zinc
