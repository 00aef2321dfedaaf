// Finds earlier occurrences of the last tokens of a sequence in a token list that only grows. A lookup visits at most
// kMaxCandidates occurrences, whatever the length of the list.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/token_id.h"

namespace zinc {

class NgramIndex {
 public:
  static constexpr size_t kNgramTokens = 3;  // shorter matches are accepted too rarely
  static constexpr size_t kMaxCandidates = 32;
  static constexpr size_t kMaxMatch = 16;  // tokens; longer matches count as this long

  void append(std::span<const TokenId> tokens);
  size_t size() const { return tokens_.size(); }
  // The index after the longest match of the end of `history`, at least kNgramTokens long, that at least one token
  // follows; of several equally long ones the nearest to `near`. -1: none.
  int64_t find(std::span<const TokenId> history, size_t near) const;
  // Whether the end of `history` and the tokens before index `at` are equal, at least kNgramTokens, and a token
  // follows.
  bool matches(std::span<const TokenId> history, size_t at) const {
    return at < tokens_.size() && match_length(history, at) >= kNgramTokens;
  }
  TokenId operator[](size_t i) const { return tokens_[i]; }

 private:
  static uint64_t key_of(std::span<const TokenId> ngram);
  size_t match_length(std::span<const TokenId> history, size_t end) const;

  std::vector<TokenId> tokens_;
  std::vector<int32_t> previous_;               // by end index of an n-gram: the end of its occurrence before; -1: none
  std::unordered_map<uint64_t, int32_t> last_;  // end of the last occurrence; keys may collide, matches are compared
};

}  // namespace zinc
