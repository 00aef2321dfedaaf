#include "constrain/constraint.h"

#include <algorithm>

namespace zinc {
namespace {

constexpr size_t kMaxMasks = 512;  // 19 KB each for a vocabulary of 152,000
// The cache is dropped above the first limit. If the texts of the cursors alone need more, the limit is twice as much,
// up to the second: dropping the cache in every call would compute it anew for every token.
constexpr size_t kResetBytes = size_t{16} << 20, kMaxResetBytes = size_t{48} << 20;
constexpr int64_t kWorkPerToken = 1 << 20;  // about 0.1 s
constexpr Automaton::State kDiffers = -3;   // plain characters lead to different states

}  // namespace

Constraint::Constraint(Grammar grammar, const Tokenizer& tokenizer, std::shared_ptr<const TokenTrie> trie)
    : tokenizer_(tokenizer),
      trie_(std::move(trie)),
      unenforced_(grammar.unenforced),
      automaton_(std::move(grammar)),
      all_except_eos_(static_cast<size_t>(tokenizer.n_vocab())),
      reset_bytes_(kResetBytes) {
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
  if (automaton_.n_bytes() > reset_bytes_ || automaton_.budget_exceeded()) {
    automaton_.reset();
    masks_.clear();
    plain_successors_.clear();
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
  reset_bytes_ = std::clamp(2 * automaton_.n_bytes(), kResetBytes, kMaxResetBytes);
  return ok_status();
}

// The bytes that the grammar reads for a token; empty: no grammar allows it.
std::string_view Constraint::text_read(TokenId token) {
  const std::string_view bytes = tokenizer_.bytes(token);
  if (tokenizer_.is_control(token) || tokenizer_.is_eog(token)) {
    scratch_ = kControlTokenByte;
    return bytes.empty() ? bytes : std::string_view(scratch_ += bytes);
  }
  return bytes.find(kControlTokenByte) == std::string_view::npos ? bytes : std::string_view();
}

Result<Automaton::State> Constraint::next(Cursor& cursor, TokenId token) {
  ZINC_TRY(found, locate(cursor));
  Automaton::State state = cursor.state_;
  if (tokenizer_.is_eog(token) && automaton_.may_end(state)) return state;
  const std::string_view bytes = text_read(token);
  if (bytes.empty()) return Automaton::kDeadState;
  for (const char byte : bytes) {
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
  if (tokenizer_.is_eog(token) && automaton_.may_end(cursor.state_)) return true;
  cursor.state_ = state;
  cursor.text_ += text_read(token);
  return true;
}

Result<const TokenSet*> Constraint::allowed_tokens(Cursor& cursor) {
  ZINC_TRY(found, locate(cursor));
  const Automaton::State state = cursor.state_;
  if (const auto known = masks_.find(state); known != masks_.end()) return &known->second;
  TokenSet mask = make_mask(state);
  ZINC_TRY(checked, check());
  if (masks_.size() == kMaxMasks) masks_.clear();
  return &masks_.emplace(state, std::move(mask)).first->second;
}

TokenSet Constraint::make_mask(Automaton::State state) {
  const std::optional<size_t> n_plain = n_plain_chars(state);
  TokenSet mask = n_plain ? trie_->plain_tokens(*n_plain) : TokenSet(static_cast<size_t>(tokenizer_.n_vocab()));
  trie_->walk(
      n_plain ? TokenTrie::Tokens::not_plain : TokenTrie::Tokens::all, state, Automaton::kDeadState,
      [&](Automaton::State from, uint8_t byte) { return automaton_.next(from, byte); },
      [&](TokenId token) { mask.insert(token); });
  if (automaton_.may_end(state)) {
    for (const TokenId id : tokenizer_.eog_tokens()) mask.insert(id);
  }
  return mask;
}

// How many plain characters may follow, whichever they are; nullopt: it depends on the characters.
std::optional<size_t> Constraint::n_plain_chars(Automaton::State state) {
  for (size_t n = 0; n < TokenTrie::kMaxPlainChars; ++n) {
    const Automaton::State next = plain_successor(state);
    if (next == kDiffers) return std::nullopt;
    if (next == Automaton::kDeadState) return n;
    if (next == state) break;
    state = next;
  }
  return TokenTrie::kMaxPlainChars;
}

Automaton::State Constraint::plain_successor(Automaton::State state) {
  if (const auto known = plain_successors_.find(state); known != plain_successors_.end()) return known->second;
  return plain_successors_[state] = compute_plain_successor(state);
}

// The state after any plain character, if it is the same for all of them.
Automaton::State Constraint::compute_plain_successor(Automaton::State state) {
  const Automaton::State target = automaton_.next(state, ' ');
  for (int byte = ' '; byte < 0x80; ++byte) {
    if (TokenTrie::is_plain(static_cast<char32_t>(byte)) &&
        automaton_.next(state, static_cast<uint8_t>(byte)) != target)
      return kDiffers;
  }
  struct LeadBytes {
    int first, last;                              // the first byte of a character
    int second_first = 0x80, second_last = 0xBF;  // the byte after it
    int n_continuations;
  };
  constexpr LeadBytes kLeads[] = {{.first = 0xC2, .last = 0xDF, .n_continuations = 1},
                                  {.first = 0xE0, .last = 0xE0, .second_first = 0xA0, .n_continuations = 2},
                                  {.first = 0xE1, .last = 0xEC, .n_continuations = 2},
                                  {.first = 0xED, .last = 0xED, .second_last = 0x9F, .n_continuations = 2},
                                  {.first = 0xEE, .last = 0xEF, .n_continuations = 2},
                                  {.first = 0xF0, .last = 0xF0, .second_first = 0x90, .n_continuations = 3},
                                  {.first = 0xF1, .last = 0xF3, .n_continuations = 3},
                                  {.first = 0xF4, .last = 0xF4, .second_last = 0x8F, .n_continuations = 3}};
  for (const LeadBytes& lead : kLeads) {
    Automaton::State checked = kDiffers;
    for (int byte = lead.first; byte <= lead.last; ++byte) {
      const Automaton::State next = automaton_.next(state, static_cast<uint8_t>(byte));
      if (next == checked) continue;
      checked = next;
      if (next == Automaton::kDeadState
              ? target != next
              : !all_lead_to(target, next, lead.n_continuations, lead.second_first, lead.second_last))
        return kDiffers;
    }
  }
  return target;
}

// Whether every continuation of a character that starts with a byte from `first` to `last` ends in `target`.
bool Constraint::all_lead_to(Automaton::State target, Automaton::State from, int n_continuations, int first, int last) {
  Automaton::State checked = kDiffers;
  for (int byte = first; byte <= last; ++byte) {
    const Automaton::State next = automaton_.next(from, static_cast<uint8_t>(byte));
    if (next == checked) continue;
    checked = next;
    if (n_continuations == 1 || next == Automaton::kDeadState) {
      if (next != target) return false;
    } else if (!all_lead_to(target, next, n_continuations - 1, 0x80, 0xBF)) {
      return false;
    }
  }
  return true;
}

}  // namespace zinc
