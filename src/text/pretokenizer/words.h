// The three word patterns shared by most rules. Each is one alternation that matches at every position; the functions
// return the end of the match at `at`. REQUIRES: at < end.
#pragma once

#include "text/pretokenizer/scan.h"

namespace zinc {

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
inline const char* gpt2_word_end(const char* at, const char* end) {
  if (const char* next = contraction_end(at, end, false)) return next;
  const char* const from = *at == ' ' ? at + 1 : at;
  const Char c = char_at(from, end);
  if (c.is(kLetter)) return skip_class(from, end, kLetter);
  if (c.is(kNumber)) return skip_class(from, end, kNumber);
  constexpr auto other = [](const Char& x) { return x.is_other_than(kLetter | kNumber); };
  if (other(c)) return skip(from, end, other);
  return space_end(at, end, false);
}

struct WordPattern {
  uint8_t word = kLetter;    // character classes of a word
  int max_digits = 1;        // per number
  bool slash_after = false;  // punctuation includes following slashes, not only newlines
};

// [^\r\n\p{L}\p{N}]? before a word: whether `c` may be that character.
inline bool may_lead_word(const Char& c) { return c.n_bytes != 0 && !c.is(kLetter | kNumber) && !c.is_newline(); }

// \p{N}{1,max}| ?[^\s<word>\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <WordPattern pattern>
const char* non_word_end(const char* at, const char* end) {
  const Char first = char_at(at, end);
  if (first.is(kNumber)) {
    const char* next = at + first.n_bytes;
    for (int n = 1; n < pattern.max_digits; ++n) {
      const Char c = char_at(next, end);
      if (!c.is(kNumber)) break;
      next += c.n_bytes;
    }
    return next;
  }
  constexpr auto other = [](const Char& c) { return c.is_other_than(pattern.word | kLetter | kNumber); };
  const char* const from = *at == ' ' ? at + 1 : at;
  if (const char* next = skip(from, end, other); next != from) {
    if constexpr (!pattern.slash_after) return skip_newlines(next, end);
    return skip(next, end, [](const Char& c) { return c.is_newline() || c.code == '/'; });
  }
  return space_end(at, end, true);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[<word>]+ and then non_word_end.
template <WordPattern pattern>
const char* word_end(const char* at, const char* end) {
  if (const char* next = contraction_end(at, end, true)) return next;
  const Char c = char_at(at, end);
  if (c.is(pattern.word)) return skip_class(at, end, pattern.word);
  if (may_lead_word(c)) {
    const char* const from = at + c.n_bytes;
    if (const char* next = skip_class(from, end, pattern.word); next != from) return next;
  }
  return non_word_end<pattern>(at, end);
}

// Words that end where an upper-case letter follows a lower-case one: [^\r\n\p{L}\p{N}]?U*l+|[^\r\n\p{L}\p{N}]?U+l* ,
// where U is any letter but a-z and l any letter but A-Z: a letter outside ASCII is both. `at` if there is no match.
inline const char* cased_word_end(const char* at, const char* end) {
  const auto is_upper = [](const Char& c) { return c.is(kLetter) && !(c.code >= 'a' && c.code <= 'z'); };
  const auto is_lower = [](const Char& c) { return c.is(kLetter) && !(c.code >= 'A' && c.code <= 'Z'); };
  const Char first = char_at(at, end);
  const char* const from = may_lead_word(first) ? at + first.n_bytes : at;
  const char* after_both = nullptr;  // end of the last letter that is both
  const char* next = from;
  for (Char c = char_at(next, end); is_upper(c); c = char_at(next, end)) {
    next += c.n_bytes;
    if (is_lower(c)) after_both = next;
  }
  if (is_lower(char_at(next, end))) return skip(next, end, is_lower);
  if (after_both) return after_both;  // U* backtracks for l+
  return next == from ? at : next;
}

}  // namespace zinc
