#include "constrain/constraint.h"

namespace zinc {
namespace {

constexpr size_t kMostMasks = 512;           // 19 KB each for a vocabulary of 152 thousand
constexpr size_t kManyStates = 12'000;       // a kilobyte each
constexpr int64_t kLooksPerToken = 1 << 20;  // some 0.1 s

}  // namespace

Constraint::Constraint(Grammar grammar, const Tokenizer& tokenizer, std::shared_ptr<const TokenTree> tree)
    : tokenizer_(tokenizer),
      tree_(std::move(tree)),
      automaton_(std::move(grammar)),
      all_but_ends_(static_cast<size_t>(tokenizer.n_vocab())) {
  for (TokenId id = 0; id < tokenizer.n_vocab(); ++id) {
    if (!tokenizer.is_end(id)) all_but_ends_.insert(id);
  }
}

Status Constraint::check() const {
  if (!automaton_.is_lost()) return ok_status();
  return fail(ErrorCode::invalid_input, "the grammar has too many ways to read the answer; make it less ambiguous");
}

void Constraint::note_size() {
  if (automaton_.n_states() > kManyStates || automaton_.is_lost()) is_large_.store(true, std::memory_order_relaxed);
}

Result<Constraint::State> Constraint::next(State state, TokenId token) {
  ZINC_TRY(checked, check());
  if (tokenizer_.is_end(token)) return automaton_.may_end(state) ? state : Automaton::kNowhere;
  if (tokenizer_.is_control(token) || tokenizer_.bytes(token).empty()) return Automaton::kNowhere;
  automaton_.set_patience(kLooksPerToken);
  for (const char byte : tokenizer_.bytes(token)) {
    if (state == Automaton::kNowhere) break;
    state = automaton_.next(state, static_cast<uint8_t>(byte));
  }
  note_size();
  ZINC_TRY(checked_again, check());
  return state;
}

Result<const TokenSet*> Constraint::allowed(State state) {
  if (const auto found = masks_.find(state); found != masks_.end()) return &found->second;
  ZINC_TRY(checked, check());
  automaton_.set_patience(kLooksPerToken);
  TokenSet mask(static_cast<size_t>(tokenizer_.n_vocab()));
  tree_->walk(
      state, Automaton::kNowhere, [&](State from, uint8_t byte) { return automaton_.next(from, byte); },
      [&](TokenId token) { mask.insert(token); });
  note_size();
  ZINC_TRY(checked_again, check());
  if (automaton_.may_end(state)) {
    for (const TokenId id : tokenizer_.end_tokens()) mask.insert(id);
  }
  if (masks_.size() == kMostMasks) masks_.clear();
  return &masks_.emplace(state, std::move(mask)).first->second;
}

}  // namespace zinc
