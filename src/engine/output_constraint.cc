#include "engine/output_constraint.h"

namespace zinc {
namespace {

// The first token of a marker if it identifies the marker: a single token or a control token.
std::optional<TokenId> marker_token(const Tokenizer& tokenizer, std::string_view marker) {
  std::vector<TokenId> tokens;
  tokenizer.encode(marker, {.add_special = false, .parse_special = true}, tokens);
  if (tokens.empty() || (tokens.size() > 1 && !tokenizer.is_control(tokens.front()))) return std::nullopt;
  return tokens.front();
}

}  // namespace

void exempt_reasoning(const ToolFormat& format, const Tokenizer& tokenizer, const ReasoningPosition& place,
                      OutputConstraint& constraint) {
  if (!constraint.grammar) return;
  constraint.has_reasoning_in_grammar = !format.channels.content_open.empty();
  if (constraint.has_reasoning_in_grammar) return;
  if (place.is_allowed) constraint.reasoning_open = marker_token(tokenizer, format.thinking.open);
  constraint.separator = marker_token(tokenizer, "\n\n");
}

ConstraintTracker::ConstraintTracker(OutputConstraint constraint, const Tokenizer& tokenizer,
                                     const ReasoningTracker& reasoning)
    : constraint_(std::move(constraint)),
      tokenizer_(tokenizer),
      is_inside_(!reasoning.is_open() || constraint_.has_reasoning_in_grammar) {}

Result<bool> ConstraintTracker::allows(TokenId id) {
  if (!is_inside_) return !tokenizer_.is_eog(id);
  if (opens_reasoning(id) || is_separator(id)) return true;
  return constraint_.grammar->allows(cursor_, id);
}

Result<const TokenSet*> ConstraintTracker::allowed() {
  if (!is_inside_) return &constraint_.grammar->all_except_eos();
  ZINC_TRY(allowed, constraint_.grammar->allowed_tokens(cursor_));
  if (!at_start_) return allowed;
  allowed_ = *allowed;
  if (constraint_.reasoning_open) allowed_.insert(*constraint_.reasoning_open);
  if (constraint_.separator && may_have_separator_) allowed_.insert(*constraint_.separator);
  return &allowed_;
}

// Bytes of a token after the reasoning are not constrained: models put at most white space there.
Result<bool> ConstraintTracker::accept(TokenId id, ReasoningTracker& reasoning) {
  if (!is_inside_) {
    is_inside_ = may_have_separator_ = reasoning.n_closed() > n_closed_;
    return false;
  }
  if (is_separator(id)) {
    may_have_separator_ = false;
    return false;
  }
  if (opens_reasoning(id)) {
    reasoning.open();
    n_closed_ = reasoning.n_closed();
    is_inside_ = false;
    constraint_.reasoning_open.reset();  // at most once
    return false;
  }
  ZINC_TRY(is_accepted, constraint_.grammar->accept(cursor_, id));
  if (!is_accepted) return false;  // not sampled: a forced end of the reasoning that was too long
  at_start_ = false;
  return constraint_.grammar->must_end(cursor_);
}

}  // namespace zinc
