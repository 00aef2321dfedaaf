// The tokens of a vocabulary as a trie over their bytes, so that an automaton checks common prefixes once. A control
// token is read as kControlTokenByte and its text: the byte does not occur in UTF-8, so only a grammar that names the
// token allows it. Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "sample/token_set.h"
#include "text/tokenizer.h"

namespace zinc {

constexpr char kControlTokenByte = '\xFF';

class TokenTrie {
 public:
  // Plain tokens: up to this many characters that need no escape in a JSON string, and not '<', which markers begin
  // with. Most of a vocabulary; a grammar that allows any such text allows all of them.
  static constexpr size_t kMaxPlainChars = 16;
  static bool is_plain(char32_t c) { return c >= 0x20 && c != '"' && c != '\\' && c != '<'; }

  explicit TokenTrie(const Tokenizer& tokenizer);

  // Calls accept(token) for every token whose bytes all have a transition from `start`: step(state, byte) returns the
  // next state, `dead` if there is none.
  enum class Tokens : uint8_t { all, not_plain };
  template <class State, class Step, class Accept>
  void walk(Tokens which, State start, State dead, Step&& step, Accept&& accept) const {
    const Nodes& trie = which == Tokens::all ? all_ : not_plain_;
    std::vector<State> path(static_cast<size_t>(depth_) + 1, start);
    for (size_t i = 0; i < trie.nodes.size();) {
      const Node& node = trie.nodes[i];
      const State state = step(path[node.depth], node.byte);
      if (state == dead) {
        i = node.end;
        continue;
      }
      path[node.depth + size_t{1}] = state;
      for (uint32_t t = node.first_token; t < node.first_token + node.n_tokens; ++t) accept(trie.tokens[t]);
      ++i;
    }
  }
  const TokenSet& plain_tokens(size_t max_chars) const { return plain_[max_chars]; }  // REQUIRES: <= kMaxPlainChars

  // `text` with kControlTokenByte before the text of every control token, as grammars have to write it.
  std::string mark_control_tokens(std::string_view text) const;

 private:
  struct Node {
    uint32_t end;          // the first node outside this node's subtree
    uint32_t first_token;  // of the tokens that end at this node
    uint32_t n_tokens;
    uint16_t depth;  // bytes before this one
    uint8_t byte;
  };
  struct Nodes {
    std::vector<Node> nodes;      // in preorder
    std::vector<TokenId> tokens;  // sorted by their bytes
  };
  struct Entry {
    std::string_view bytes;  // as read by a grammar
    TokenId token;
  };
  void build(const std::vector<Entry>& entries, Nodes& out);

  Nodes all_, not_plain_;
  std::array<TokenSet, kMaxPlainChars + 1> plain_;  // [n]: plain tokens of at most n characters
  std::vector<std::string> control_texts_;          // with kControlTokenByte, longest first
  uint16_t depth_ = 0;
};

}  // namespace zinc
