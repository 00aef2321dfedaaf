// A set of tokens, one bit per vocabulary entry. Immutable once built; share freely between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace zinc {

class TokenSet {
 public:
  TokenSet() = default;
  explicit TokenSet(size_t n_vocab) : words_((n_vocab + 63) / 64) {}

  void insert(TokenId token) {  // REQUIRES: 0 <= token < n_vocab
    words_[static_cast<size_t>(token) / 64] |= uint64_t{1} << (static_cast<size_t>(token) % 64);
  }
  void intersect(const TokenSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= i < other.words_.size() ? other.words_[i] : 0;
  }
  bool contains(TokenId token) const {
    const auto index = static_cast<size_t>(token);
    return index / 64 < words_.size() && (words_[index / 64] >> (index % 64) & 1) != 0;
  }
  std::span<const uint64_t> words() const { return words_; }  // 64 tokens each, lowest bit first

 private:
  std::vector<uint64_t> words_;
};

// The tokens whose bytes contain one of `texts`; empty texts match nothing. Scans the whole vocabulary: call it once
// per request, not per token. A text that spans several tokens is not found.
TokenSet tokens_containing(std::span<const std::string> texts, int32_t n_vocab,
                           const std::function<std::string_view(TokenId)>& bytes_of);

}  // namespace zinc
