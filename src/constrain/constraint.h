// Which tokens may come next so that an answer is a text of a grammar. Shared by all answers that have this grammar and
// vocabulary: what one has found out, the others know. Made by any thread, then the engine thread's alone.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <unordered_map>

#include "base/result.h"
#include "base/token_id.h"
#include "constrain/automaton.h"
#include "constrain/token_tree.h"
#include "sample/token_set.h"
#include "text/tokenizer.h"

namespace zinc {

class Constraint {
 public:
  using State = Automaton::State;

  Constraint(Grammar grammar, const Tokenizer& tokenizer, std::shared_ptr<const TokenTree> tree);

  State start() const { return automaton_.start(); }
  bool must_end(State state) const { return automaton_.must_end(state); }
  // Where a token leads; Automaton::kNowhere: it may not come. One that ends the answer leads to where it was. Fails
  // where the grammar has too many ways to be read.
  Result<State> next(State state, TokenId token);
  // All that may come, end tokens included; valid until the next call. Fails as next() does.
  Result<const TokenSet*> allowed(State state);
  // Every token but those that end an answer.
  const TokenSet& all_but_ends() const { return all_but_ends_; }

  // It has grown so large that the next answer should begin with a new one. Any thread.
  bool is_large() const { return is_large_.load(std::memory_order_relaxed); }

 private:
  Status check() const;
  void note_size();

  Tokenizer tokenizer_;
  std::shared_ptr<const TokenTree> tree_;
  Automaton automaton_;
  TokenSet all_but_ends_;
  std::unordered_map<State, TokenSet> masks_;
  std::atomic<bool> is_large_ = false;
};

}  // namespace zinc
