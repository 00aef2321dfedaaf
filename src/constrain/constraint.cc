#include "constrain/constraint.h"

namespace zinc {
namespace {

constexpr size_t kMaxMasks = 512;  // 19 KB each for a vocabulary of 152,000
constexpr size_t kResetBytes = size_t{16} << 20;
constexpr int64_t kWorkPerToken = 1 << 20;  // about 0.1 s

}  // namespace

Constraint::Constraint(Grammar grammar, const Tokenizer& tokenizer, std::shared_ptr<const TokenTrie> trie)
    : tokenizer_(tokenizer),
      trie_(std::move(trie)),
      automaton_(std::move(grammar)),
      all_except_eos_(static_cast<size_t>(tokenizer.n_vocab())) {
  for (TokenId id = 0; id < tokenizer.n_vocab(); ++id) {
    if (!tokenizer.is_eog(id)) all_except_eos_.insert(id);
  }
}

Status Constraint::check() const {
  if (!automaton_.budget_exceeded()) return ok_status();
  return fail(ErrorCode::invalid_input,
              "the grammar needs too many parser states here; make it less ambiguous or lower its repetition counts");
}

// Cached states are dropped only here, at the start of a call, so that a located cursor stays valid until its end.
Status Constraint::locate(Cursor& cursor) {
  if (automaton_.n_bytes() > kResetBytes || automaton_.budget_exceeded()) {
    automaton_.reset();
    masks_.clear();
    ++epoch_;
  }
  automaton_.set_work_budget(kWorkPerToken);
  if (cursor.epoch_ == epoch_) return ok_status();
  Automaton::State state = automaton_.start();
  for (size_t i = 0; i < cursor.text_.size() && state != Automaton::kDeadState; ++i) {
    state = automaton_.next(state, static_cast<uint8_t>(cursor.text_[i]));
  }
  ZINC_TRY(checked, check());
  cursor.state_ = state;
  cursor.epoch_ = epoch_;
  return ok_status();
}

Result<Automaton::State> Constraint::next(Cursor& cursor, TokenId token) {
  ZINC_TRY(found, locate(cursor));
  Automaton::State state = cursor.state_;
  if (tokenizer_.is_eog(token)) return automaton_.may_end(state) ? state : Automaton::kDeadState;
  if (tokenizer_.is_control(token) || tokenizer_.bytes(token).empty()) return Automaton::kDeadState;
  for (const char byte : tokenizer_.bytes(token)) {
    if (state != Automaton::kDeadState) state = automaton_.next(state, static_cast<uint8_t>(byte));
  }
  ZINC_TRY(checked, check());
  return state;
}

Result<bool> Constraint::allows(Cursor& cursor, TokenId token) {
  ZINC_TRY(state, next(cursor, token));
  return state != Automaton::kDeadState;
}

Result<bool> Constraint::must_end(Cursor& cursor) {
  ZINC_TRY(found, locate(cursor));
  return automaton_.must_end(cursor.state_);
}

Result<bool> Constraint::accept(Cursor& cursor, TokenId token) {
  ZINC_TRY(state, next(cursor, token));
  if (state == Automaton::kDeadState) return false;
  if (tokenizer_.is_eog(token)) return true;
  cursor.state_ = state;
  cursor.text_ += tokenizer_.bytes(token);
  return true;
}

Result<const TokenSet*> Constraint::allowed_tokens(Cursor& cursor) {
  ZINC_TRY(found, locate(cursor));
  const Automaton::State state = cursor.state_;
  if (const auto known = masks_.find(state); known != masks_.end()) return &known->second;
  TokenSet mask(static_cast<size_t>(tokenizer_.n_vocab()));
  trie_->walk(
      state, Automaton::kDeadState, [&](Automaton::State from, uint8_t byte) { return automaton_.next(from, byte); },
      [&](TokenId token) { mask.insert(token); });
  ZINC_TRY(checked, check());
  if (automaton_.may_end(state)) {
    for (const TokenId id : tokenizer_.eog_tokens()) mask.insert(id);
  }
  if (masks_.size() == kMaxMasks) masks_.clear();
  return &masks_.emplace(state, std::move(mask)).first->second;
}

}  // namespace zinc
