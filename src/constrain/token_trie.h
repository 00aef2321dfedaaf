// The vocabulary's text tokens as a trie of their bytes, flattened into one array: shared prefixes are visited once,
// and the subtree below a rejected byte is skipped. Immutable; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/token_id.h"
#include "text/tokenizer.h"

namespace zinc {

class TokenTrie {
 public:
  // Without control tokens and end tokens.
  explicit TokenTrie(const Tokenizer& tokenizer);

  // Calls accept(token) for every token whose bytes can all be consumed: step(state, byte) returns the next state, or
  // `dead`.
  template <class State, class Step, class Accept>
  void walk(State start, State dead, Step&& step, Accept&& accept) const {
    std::vector<State> path(static_cast<size_t>(depth_) + 1, start);
    for (size_t i = 0; i < nodes_.size();) {
      const Node& node = nodes_[i];
      const State state = step(path[node.depth], node.byte);
      if (state == dead) {
        i = node.end;
        continue;
      }
      path[node.depth + size_t{1}] = state;
      for (uint32_t t = node.first_token; t < node.first_token + node.n_tokens; ++t) accept(tokens_[t]);
      ++i;
    }
  }

 private:
  struct Node {
    uint32_t end;          // the first node outside this node's subtree
    uint32_t first_token;  // of the tokens that end at this node
    uint32_t n_tokens;
    uint16_t depth;  // bytes before this one
    uint8_t byte;
  };
  std::vector<Node> nodes_;      // in preorder
  std::vector<TokenId> tokens_;  // sorted by their bytes
  uint16_t depth_ = 0;
};

}  // namespace zinc
