// A counter per token: counting a window and clearing it again costs the size of the window, not of the vocabulary.
// Tokens outside the vocabulary (a history may contain placeholders) are ignored.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/token_id.h"

namespace zinc {

class TokenCounts {
 public:
  void reset(size_t n_vocab) {
    for (const TokenId token : touched_) counts_[static_cast<size_t>(token)] = 0;
    touched_.clear();
    if (counts_.size() != n_vocab) counts_.assign(n_vocab, 0);
  }

  void increment(TokenId token) {
    if (int32_t* count = find(token)) ++*count;
  }
  void raise_to(TokenId token, int32_t value) {  // REQUIRES: value > 0
    if (int32_t* count = find(token)) *count = std::max(*count, value);
  }

  std::span<const TokenId> touched() const { return touched_; }  // in order of first mention
  int32_t operator[](TokenId token) const { return counts_[static_cast<size_t>(token)]; }

 private:
  int32_t* find(TokenId token) {
    const auto index = static_cast<size_t>(token);  // negative ids become huge
    if (index >= counts_.size()) return nullptr;
    if (counts_[index] == 0) touched_.push_back(token);
    return &counts_[index];
  }

  std::vector<int32_t> counts_;
  std::vector<TokenId> touched_;
};

}  // namespace zinc
