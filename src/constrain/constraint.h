// Which tokens may come next so that an answer is a text of a grammar. Shared by all answers that have this grammar and
// vocabulary: what one has found out, the others know. It forgets all of it when that has become much; an answer is
// then found again by what it said. Made by any thread, then the engine thread's alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
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
  // How far an answer is.
  class Place {
    friend class Constraint;
    std::string said_;
    Automaton::State state_ = Automaton::kNowhere;
    uint64_t age_ = 0;  // of the constraint when the state was found
  };

  Constraint(Grammar grammar, const Tokenizer& tokenizer, std::shared_ptr<const TokenTree> tree);

  // All of these fail where the grammar has too many ways to be read, or its parts are too many to be counted.
  Result<bool> allows(Place& place, TokenId token);
  Result<const TokenSet*> allowed(Place& place);   // all that may come, end tokens included; valid until the next call
  Result<bool> must_end(Place& place);             // nothing may follow
  Result<bool> take(Place& place, TokenId token);  // it came; false: it may not, and the place is where it was
  // Every token but those that end an answer.
  const TokenSet& all_but_ends() const { return all_but_ends_; }

 private:
  Status find(Place& place);
  Result<Automaton::State> next(Place& place, TokenId token);
  Status check() const;

  Tokenizer tokenizer_;
  std::shared_ptr<const TokenTree> tree_;
  Automaton automaton_;
  TokenSet all_but_ends_;
  std::unordered_map<Automaton::State, TokenSet> masks_;
  uint64_t age_ = 1;
};

}  // namespace zinc
