#include "engine/output_constraint.h"

#include <algorithm>

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

Status scope_to_content(const ToolFormat& format, const Tokenizer& tokenizer, const OutputParts& parts,
                        OutputConstraint& constraint) {
  if (!constraint.grammar) return ok_status();
  if (!format.content_after.front().empty()) {
    constraint.starts_after.assign(format.content_after.begin(), format.content_after.end());
    constraint.may_end_before_start = parts.may_call_tools;
    return ok_status();
  }
  if (parts.starts_in_reasoning) constraint.starts_after = {std::string(format.thinking.close)};
  const std::optional<TokenId> reasoning = marker_token(tokenizer, format.thinking.open);
  if (reasoning && parts.may_reason)
    constraint.alternatives.push_back({*reasoning, std::string(format.thinking.close)});
  constraint.separator = marker_token(tokenizer, "\n\n");
  if (!parts.may_call_tools) return ok_status();
  const std::optional<TokenId> call = marker_token(tokenizer, format.call_open);
  if (!call) return fail(ErrorCode::unsupported, "this model does not start a tool call with a distinct token");
  constraint.alternatives.push_back({*call, ""});
  return ok_status();
}

ConstraintTracker::ConstraintTracker(OutputConstraint constraint, const Tokenizer& tokenizer)
    : constraint_(std::move(constraint)), tokenizer_(tokenizer) {
  if (!constraint_.starts_after.empty()) wait_for_texts(constraint_.starts_after);
}

void ConstraintTracker::wait_for_texts(std::vector<std::string> texts) {
  std::ranges::reverse(texts);
  finder_ = StopStringMatcher({texts.back()});
  pending_texts_ = std::move(texts);
  phase_ = Phase::before;
}

const OutputConstraint::Alternative* ConstraintTracker::find_alternative(TokenId id) const {
  if (!at_start_) return nullptr;
  const auto found = std::ranges::find(constraint_.alternatives, id, &OutputConstraint::Alternative::token);
  return found != constraint_.alternatives.end() ? &*found : nullptr;
}

Result<bool> ConstraintTracker::allows(TokenId id) {
  if (phase_ == Phase::after) return true;
  if (phase_ == Phase::before) return constraint_.may_end_before_start || !tokenizer_.is_eog(id);
  if (find_alternative(id) || is_separator(id)) return true;
  return constraint_.grammar->allows(cursor_, id);
}

Result<const TokenSet*> ConstraintTracker::allowed() {
  if (phase_ == Phase::after || (phase_ == Phase::before && constraint_.may_end_before_start)) return nullptr;
  if (phase_ == Phase::before) return &constraint_.grammar->all_except_eos();
  ZINC_TRY(allowed, constraint_.grammar->allowed_tokens(cursor_));
  if (!at_start_) return allowed;
  allowed_ = *allowed;
  for (const OutputConstraint::Alternative& other : constraint_.alternatives) allowed_.insert(other.token);
  if (constraint_.separator && may_have_separator_) allowed_.insert(*constraint_.separator);
  return &allowed_;
}

Result<bool> ConstraintTracker::accept(TokenId id) {
  if (phase_ == Phase::after) return false;
  if (phase_ == Phase::before) {
    scan_bytes(id);
    return false;
  }
  if (is_separator(id)) {
    may_have_separator_ = false;
    return false;
  }
  if (const OutputConstraint::Alternative* other = find_alternative(id)) {
    if (other->ends_with.empty()) {
      phase_ = Phase::after;
    } else {
      wait_for_texts({other->ends_with});
      std::erase_if(constraint_.alternatives, [&](const OutputConstraint::Alternative& alternative) {
        return alternative.token == id;
      });  // at most once
    }
    return false;
  }
  ZINC_TRY(is_accepted, constraint_.grammar->accept(cursor_, id));
  if (!is_accepted) return false;  // not sampled: a forced end of the reasoning that was too long
  at_start_ = false;
  return constraint_.grammar->must_end(cursor_);
}

// Bytes of a token after the last pending text are not constrained: models put at most white space there.
void ConstraintTracker::scan_bytes(TokenId id) {
  for (const char byte : tokenizer_.bytes(id)) {
    if (!finder_.push(byte)) continue;
    pending_texts_.pop_back();
    if (pending_texts_.empty()) {
      phase_ = Phase::inside;
      may_have_separator_ = true;
      return;
    }
    finder_ = StopStringMatcher({pending_texts_.back()});
  }
}

}  // namespace zinc
