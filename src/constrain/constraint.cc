#include "constrain/constraint.h"

namespace zinc {
namespace {

constexpr size_t kMostMasks = 512;  // 19 KB each for a vocabulary of 152 thousand
constexpr size_t kManyBytes = size_t{16} << 20;
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
  return fail(ErrorCode::invalid_input,
              "the grammar has too many ways to read the answer, or parts that repeat too often to be counted");
}

// What others found is forgotten only between two calls, so that a place holds for the rest of one.
Status Constraint::find(Place& place) {
  if (automaton_.n_bytes() > kManyBytes || automaton_.is_lost()) {
    automaton_.forget();
    masks_.clear();
    ++age_;
  }
  automaton_.set_patience(kLooksPerToken);
  if (place.age_ == age_) return ok_status();
  Automaton::State state = automaton_.start();
  for (size_t i = 0; i < place.said_.size() && state != Automaton::kNowhere; ++i) {
    state = automaton_.next(state, static_cast<uint8_t>(place.said_[i]));
  }
  ZINC_TRY(checked, check());
  place.state_ = state;
  place.age_ = age_;
  return ok_status();
}

Result<Automaton::State> Constraint::next(Place& place, TokenId token) {
  ZINC_TRY(found, find(place));
  Automaton::State state = place.state_;
  if (tokenizer_.is_end(token)) return automaton_.may_end(state) ? state : Automaton::kNowhere;
  if (tokenizer_.is_control(token) || tokenizer_.bytes(token).empty()) return Automaton::kNowhere;
  for (const char byte : tokenizer_.bytes(token)) {
    if (state != Automaton::kNowhere) state = automaton_.next(state, static_cast<uint8_t>(byte));
  }
  ZINC_TRY(checked, check());
  return state;
}

Result<bool> Constraint::allows(Place& place, TokenId token) {
  ZINC_TRY(state, next(place, token));
  return state != Automaton::kNowhere;
}

Result<bool> Constraint::must_end(Place& place) {
  ZINC_TRY(found, find(place));
  return automaton_.must_end(place.state_);
}

Result<bool> Constraint::take(Place& place, TokenId token) {
  ZINC_TRY(state, next(place, token));
  if (state == Automaton::kNowhere) return false;
  if (tokenizer_.is_end(token)) return true;
  place.state_ = state;
  place.said_ += tokenizer_.bytes(token);
  return true;
}

Result<const TokenSet*> Constraint::allowed(Place& place) {
  ZINC_TRY(found, find(place));
  const Automaton::State state = place.state_;
  if (const auto known = masks_.find(state); known != masks_.end()) return &known->second;
  TokenSet mask(static_cast<size_t>(tokenizer_.n_vocab()));
  tree_->walk(
      state, Automaton::kNowhere, [&](Automaton::State from, uint8_t byte) { return automaton_.next(from, byte); },
      [&](TokenId token) { mask.insert(token); });
  ZINC_TRY(checked, check());
  if (automaton_.may_end(state)) {
    for (const TokenId id : tokenizer_.end_tokens()) mask.insert(id);
  }
  if (masks_.size() == kMostMasks) masks_.clear();
  return &masks_.emplace(state, std::move(mask)).first->second;
}

}  // namespace zinc
