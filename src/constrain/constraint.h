// Constrained decoding: which tokens may follow so that the output stays in a grammar. Shared by all requests with this
// grammar and vocabulary, and so are the cached states and token masks. When the cache grows too large it is dropped; a
// cursor is then recomputed from its text. Created by any thread, then used by one thread at a time: the engine thread,
// or its mask worker while a step runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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
  uint64_t n_resets() const { return epoch_ - 1; }     // how often the cache was dropped
  // Parts of its source that the grammar does not enforce. May be read by any thread.
  const std::vector<std::string>& unenforced() const { return unenforced_; }
  // Every token except the end tokens.
  const TokenSet& all_except_eos() const { return all_except_eos_; }

 private:
  Status locate(Cursor& cursor);
  Result<Automaton::State> next(Cursor& cursor, TokenId token);
  std::string_view text_read(TokenId token);
  TokenSet make_mask(Automaton::State state);
  std::optional<size_t> n_plain_chars(Automaton::State state);
  Automaton::State plain_successor(Automaton::State state);
  Automaton::State compute_plain_successor(Automaton::State state);
  bool all_lead_to(Automaton::State target, Automaton::State from, int n_continuations, int first, int last);
  Status check() const;

  Tokenizer tokenizer_;
  std::shared_ptr<const TokenTrie> trie_;
  const std::vector<std::string> unenforced_;
  Automaton automaton_;
  TokenSet all_except_eos_;
  std::unordered_map<Automaton::State, TokenSet> masks_;
  std::unordered_map<Automaton::State, Automaton::State> plain_successors_;
  std::string scratch_;
  size_t reset_bytes_;  // of the automaton, above which the cache is dropped
  uint64_t epoch_ = 1;
};

}  // namespace zinc
