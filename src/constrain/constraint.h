// Constrained decoding: which tokens may follow so that the output stays in a grammar. Shared by all requests with this
// grammar and vocabulary, and so are the cached states and token masks. When the cache grows too large it is dropped; a
// cursor is then recomputed from its text. Created by any thread, then used by the engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "base/token_id.h"
#include "constrain/automaton.h"
#include "constrain/token_trie.h"
#include "sample/token_set.h"
#include "text/tokenizer.h"

namespace zinc {

class Constraint {
 public:
  // The position of one output in the grammar.
  class Cursor {
    friend class Constraint;
    std::string text_;
    Automaton::State state_ = Automaton::kDeadState;
    uint64_t epoch_ = 0;  // of the constraint when `state_` was computed
  };

  Constraint(Grammar grammar, const Tokenizer& tokenizer, std::shared_ptr<const TokenTrie> trie);

  // All of these fail if the grammar is too ambiguous, or its repetitions too many to be counted.
  Result<bool> allows(Cursor& cursor, TokenId token);
  Result<const TokenSet*> allowed_tokens(
      Cursor& cursor);                    // those that may follow, including EOS; valid until the next call
  Result<bool> must_end(Cursor& cursor);  // only EOS may follow
  Result<bool> accept(Cursor& cursor, TokenId token);  // advances; false: not allowed, cursor unchanged
  // Every token except the end tokens.
  const TokenSet& all_except_eos() const { return all_except_eos_; }

 private:
  Status locate(Cursor& cursor);
  Result<Automaton::State> next(Cursor& cursor, TokenId token);
  Status check() const;

  Tokenizer tokenizer_;
  std::shared_ptr<const TokenTrie> trie_;
  Automaton automaton_;
  TokenSet all_except_eos_;
  std::unordered_map<Automaton::State, TokenSet> masks_;
  uint64_t epoch_ = 1;
};

}  // namespace zinc
