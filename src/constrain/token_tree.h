// The tokens of a vocabulary that say something, as a tree of their bytes in one array: what begins alike is looked at
// once, and what follows a byte that may not come is passed over. Immutable; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/token_id.h"
#include "text/tokenizer.h"

namespace zinc {

class TokenTree {
 public:
  // Control tokens and those that end an answer are not in it.
  explicit TokenTree(const Tokenizer& tokenizer);

  // Takes every token whose bytes can be walked one by one: step(from, byte) gives where that leads, or `nowhere`.
  template <class Place, class Step, class Take>
  void walk(Place start, Place nowhere, Step&& step, Take&& take) const {
    std::vector<Place> path(static_cast<size_t>(depth_) + 1, start);
    for (size_t i = 0; i < nodes_.size();) {
      const Node& node = nodes_[i];
      const Place place = step(path[node.depth], node.byte);
      if (place == nowhere) {
        i = node.end;
        continue;
      }
      path[node.depth + size_t{1}] = place;
      for (uint32_t t = node.first_token; t < node.first_token + node.n_tokens; ++t) take(tokens_[t]);
      ++i;
    }
  }

 private:
  struct Node {
    uint32_t end;          // the first node that is not below this one
    uint32_t first_token;  // of those that end here
    uint32_t n_tokens;
    uint16_t depth;  // bytes before this one
    uint8_t byte;
  };
  std::vector<Node> nodes_;      // parents before their children
  std::vector<TokenId> tokens_;  // by their bytes
  uint16_t depth_ = 0;
};

}  // namespace zinc
