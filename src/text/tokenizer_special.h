// Finds special tokens in text: leftmost, longest match. Immutable once built.
// User text must not become control tokens, so matches depend on whether the text is trusted.
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

// The ranges of a text that are trusted, sorted and disjoint. Inside them all special tokens match; elsewhere only
// user-defined tokens, and visible control tokens if `visible_control`.
struct TrustedRanges {
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> ranges;
  bool visible_control = false;
};

class SpecialTokenFinder {
 public:
  struct Match {
    TokenId id;
    size_t begin, end;  // `end` includes the white space stripped by rstrip
  };

  // Longer special tokens are ignored, which bounds the search at each byte. No model has longer ones.
  static constexpr size_t kMaxBytes = 512;

  // `rstrip`: the token strips the white space that follows it, as in HF tokenizers.
  void add(std::string_view text, TokenId id, TokenType type, bool rstrip);

  // The first match at or after `from`. `range_cursor`: index of the first trusted range that does not end before
  // `from`; it is advanced, so that a text is searched in one pass.
  std::optional<Match> find_next(std::string_view text, size_t from, const TrustedRanges& trusted,
                                 size_t& range_cursor) const;

  std::optional<TokenId> find(std::string_view text) const;  // the special token with exactly this text

 private:
  struct Entry {
    TokenId id = -1;
    TokenType type = TokenType::undefined;
    bool rstrip = false;
  };
  std::optional<Match> match_at(std::string_view text, size_t at, size_t trusted_end, bool visible_control) const;

  ByteTrie trie_;
  std::vector<Entry> entries_;      // by node of trie_
  std::bitset<65536> first_pairs_;  // first two bytes of all tokens
  std::bitset<256> first_bytes_;    // first bytes, for the last byte of a text
};

}  // namespace zinc
