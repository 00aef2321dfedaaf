#include "engine/answer_form.h"

#include <algorithm>

namespace zinc {
namespace {

// The token that a mark begins with and nothing else does.
std::optional<TokenId> mark_token(const Tokenizer& tokenizer, std::string_view mark) {
  std::vector<TokenId> tokens;
  tokenizer.encode(mark, {.add_special = false, .parse_special = true}, tokens);
  if (tokens.empty() || (tokens.size() > 1 && !tokenizer.is_control(tokens.front()))) return std::nullopt;
  return tokens.front();
}

}  // namespace

Status place_form(const ToolFormat& format, const Tokenizer& tokenizer, const AnswerParts& parts, AnswerForm& form) {
  if (!form.constraint) return ok_status();
  if (!format.content_after.front().empty()) {
    form.begins_after.assign(format.content_after.begin(), format.content_after.end());
    form.may_end_before = parts.may_call;
    return ok_status();
  }
  if (parts.opens_thought) form.begins_after = {std::string(format.thinking.close)};
  const std::optional<TokenId> thought = mark_token(tokenizer, format.thinking.open);
  if (thought && parts.may_think) form.instead.push_back({*thought, std::string(format.thinking.close)});
  form.gap = mark_token(tokenizer, "\n\n");
  if (!parts.may_call) return ok_status();
  const std::optional<TokenId> call = mark_token(tokenizer, format.call_open);
  if (!call) return fail(ErrorCode::unsupported, "this model's calls cannot be told from content by how they begin");
  form.instead.push_back({*call, ""});
  return ok_status();
}

FormKeeper::FormKeeper(AnswerForm form, const Tokenizer& tokenizer) : form_(std::move(form)), tokenizer_(tokenizer) {
  if (!form_.begins_after.empty()) wait_for(form_.begins_after);
}

void FormKeeper::wait_for(std::vector<std::string> texts) {
  std::ranges::reverse(texts);
  finder_ = StopFinder({texts.back()});
  awaited_ = std::move(texts);
  at_ = At::before;
}

const AnswerForm::Instead* FormKeeper::instead_of_form(TokenId id) const {
  if (!at_start_) return nullptr;
  const auto found = std::ranges::find(form_.instead, id, &AnswerForm::Instead::token);
  return found != form_.instead.end() ? &*found : nullptr;
}

Result<bool> FormKeeper::allows(TokenId id) {
  if (at_ == At::beyond) return true;
  if (at_ == At::before) return form_.may_end_before || !tokenizer_.is_end(id);
  if (instead_of_form(id) || is_gap(id)) return true;
  return form_.constraint->allows(place_, id);
}

Result<const TokenSet*> FormKeeper::allowed() {
  if (at_ == At::beyond || (at_ == At::before && form_.may_end_before)) return nullptr;
  if (at_ == At::before) return &form_.constraint->all_but_ends();
  ZINC_TRY(allowed, form_.constraint->allowed(place_));
  if (!at_start_) return allowed;
  allowed_ = *allowed;
  for (const AnswerForm::Instead& other : form_.instead) allowed_.insert(other.token);
  if (form_.gap && may_have_gap_) allowed_.insert(*form_.gap);
  return &allowed_;
}

Result<bool> FormKeeper::take(TokenId id) {
  if (at_ == At::beyond) return false;
  if (at_ == At::before) {
    pass_bytes(id);
    return false;
  }
  if (is_gap(id)) {
    may_have_gap_ = false;
    return false;
  }
  if (const AnswerForm::Instead* other = instead_of_form(id)) {
    if (other->until.empty()) {
      at_ = At::beyond;
    } else {
      wait_for({other->until});
      std::erase_if(form_.instead, [&](const AnswerForm::Instead& one) { return one.token == id; });  // once
    }
    return false;
  }
  ZINC_TRY(is_taken, form_.constraint->take(place_, id));
  if (!is_taken) return false;  // not chosen, but said behind a thought that was too long
  at_start_ = false;
  return form_.constraint->must_end(place_);
}

// What a token says behind the last text that is awaited is no part of the form: models put a blank there at most.
void FormKeeper::pass_bytes(TokenId id) {
  for (const char byte : tokenizer_.bytes(id)) {
    if (!finder_.push(byte)) continue;
    awaited_.pop_back();
    if (awaited_.empty()) {
      at_ = At::form;
      may_have_gap_ = true;
      return;
    }
    finder_ = StopFinder({awaited_.back()});
  }
}

}  // namespace zinc
