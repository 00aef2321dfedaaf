#include "constrain/token_trie.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace zinc {
namespace {

constexpr size_t kMaxTokenBytes = std::numeric_limits<uint16_t>::max() - 1;

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) {
  for (TokenId id = 0; id < tokenizer.n_vocab(); ++id) {
    const size_t n = tokenizer.bytes(id).size();
    if (n > 0 && n <= kMaxTokenBytes && !tokenizer.is_control(id) && !tokenizer.is_eog(id)) tokens_.push_back(id);
  }
  std::ranges::stable_sort(tokens_, {}, [&](TokenId id) { return tokenizer.bytes(id); });

  std::vector<uint32_t> path;  // nodes of the last token's bytes
  std::string_view last;
  const auto close_below = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
  };
  for (uint32_t t = 0; t < tokens_.size(); ++t) {
    const std::string_view bytes = tokenizer.bytes(tokens_[t]);
    close_below(static_cast<size_t>(std::ranges::mismatch(bytes, last).in1 - bytes.begin()));
    while (path.size() < bytes.size()) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.end = 0,
                        .first_token = t,
                        .n_tokens = 0,
                        .depth = static_cast<uint16_t>(path.size() - 1),
                        .byte = static_cast<uint8_t>(bytes[path.size() - 1])});
    }
    ++nodes_[path.back()].n_tokens;  // tokens with the same bytes are adjacent
    depth_ = std::max(depth_, static_cast<uint16_t>(bytes.size()));
    last = bytes;
  }
  close_below(0);
}

}  // namespace zinc
