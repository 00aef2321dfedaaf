// Finds special tokens in text: leftmost first, and the longest where several begin. Constant once built.
// Which tokens may be found where is a matter of trust: text from a user must not become control tokens.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "text/byte_trie.h"
#include "text/tokenizer_vocab.h"

namespace zinc {

// Where special tokens may be found. In `trusted` ranges (sorted, apart from each other) all of them, as long as the
// token lies in one range; elsewhere those the file calls user-defined, and open control tokens if `open_control`.
struct TrustedText {
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> trusted;
  bool open_control = false;
};

class SpecialTokenFinder {
 public:
  struct Match {
    TokenId id;
    size_t begin, end;  // `end` is past the white space the token swallows, if it does
  };

  // Longer texts than any model's special tokens are not found: a search may begin one at every byte.
  static constexpr size_t kMaxBytes = 512;

  // `strip_after`: the token swallows the white space that follows it.
  void add(std::string_view text, TokenId id, TokenType type, bool strip_after);

  // The first match at or after `from`. `range` is the first trusted range that does not end before `from`; it is moved
  // on, so that a text is searched in one sweep.
  std::optional<Match> next(std::string_view text, size_t from, const TrustedText& trust, size_t& range) const;

  std::optional<TokenId> find(std::string_view text) const;  // the special token with exactly this text

 private:
  struct Entry {
    TokenId id = -1;
    TokenType type = TokenType::undefined;
    bool strip_after = false;
  };
  std::optional<Match> match_at(std::string_view text, size_t at, size_t trusted_end, bool open_control) const;

  ByteTrie trie_;
  std::vector<Entry> entries_;    // by node of trie_
  std::bitset<65536> begins_;     // pairs of bytes some token begins with
  std::bitset<256> first_bytes_;  // the same for the last byte of a text
};

}  // namespace zinc
