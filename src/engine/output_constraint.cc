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
  if (place.starts_open) constraint.starts_after = format.thinking.close;
  const std::optional<TokenId> open = marker_token(tokenizer, format.thinking.open);
  if (open && place.is_allowed) constraint.reasoning = {.open = *open, .close = std::string(format.thinking.close)};
  constraint.separator = marker_token(tokenizer, "\n\n");
}

ConstraintTracker::ConstraintTracker(OutputConstraint constraint, const Tokenizer& tokenizer)
    : constraint_(std::move(constraint)), tokenizer_(tokenizer) {
  if (!constraint_.starts_after.empty()) wait_for(constraint_.starts_after);
}

void ConstraintTracker::wait_for(std::string text) {
  finder_ = StopStringMatcher({std::move(text)});
  is_inside_ = false;
}

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
  if (constraint_.reasoning) allowed_.insert(constraint_.reasoning->open);
  if (constraint_.separator && may_have_separator_) allowed_.insert(*constraint_.separator);
  return &allowed_;
}

Result<bool> ConstraintTracker::accept(TokenId id) {
  if (!is_inside_) {
    scan_bytes(id);
    return false;
  }
  if (is_separator(id)) {
    may_have_separator_ = false;
    return false;
  }
  if (opens_reasoning(id)) {
    wait_for(constraint_.reasoning->close);
    constraint_.reasoning.reset();  // at most once
    return false;
  }
  ZINC_TRY(is_accepted, constraint_.grammar->accept(cursor_, id));
  if (!is_accepted) return false;  // not sampled: a forced end of the reasoning that was too long
  at_start_ = false;
  return constraint_.grammar->must_end(cursor_);
}

// Bytes of a token after the text are not constrained: models put at most white space there.
void ConstraintTracker::scan_bytes(TokenId id) {
  for (const char byte : tokenizer_.bytes(id)) {
    if (!finder_.push(byte)) continue;
    is_inside_ = true;
    may_have_separator_ = true;
    return;
  }
}

}  // namespace zinc
