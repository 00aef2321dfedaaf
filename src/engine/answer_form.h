// The form an answer has to have: a grammar, and where in the answer it holds. Models think before they answer, or call
// a tool instead; what they say then is free.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "constrain/constraint.h"
#include "text/stream_decoder.h"
#include "text/tool_format.h"

namespace zinc {

struct AnswerForm {
  // Something else that may stand where the form begins.
  struct Instead {
    TokenId token;      // it begins with
    std::string until;  // the form follows behind this text; empty: it never does
  };

  std::shared_ptr<Constraint> constraint = {};  // nullptr: any text
  std::vector<std::string> begins_after = {};   // texts said in this order, with any between; empty: at once
  bool may_end_before = false;                  // the answer may be over before the form begins
  std::vector<Instead> instead = {};
  std::optional<TokenId> gap = {};  // may stand once between what came before and the form
};

// What else than content an answer may have.
struct AnswerParts {
  bool opens_thought = false;  // the prompt ended inside a thought
  bool may_think = true;
  bool may_call = false;
};
// Lets the form hold for the content alone, as a family of models writes it. Fails where calls are possible that begin
// like content.
Status place_form(const ToolFormat& format, const Tokenizer& tokenizer, const AnswerParts& parts, AnswerForm& form);

// Holds one answer to its form. One thread.
class FormKeeper {
 public:
  FormKeeper(AnswerForm form, const Tokenizer& tokenizer);

  Result<bool> allows(TokenId id);    // whether it may come next
  Result<const TokenSet*> allowed();  // all that may; nullptr: every token. Valid until the next call
  Result<bool> take(TokenId id);      // it came; whether the answer is complete and nothing may follow
  bool has_begun() const { return at_ == At::form && !at_start_; }  // with the form

 private:
  enum class At { before, form, beyond };
  const AnswerForm::Instead* instead_of_form(TokenId id) const;
  bool is_gap(TokenId id) const { return at_start_ && may_have_gap_ && form_.gap == id; }
  void wait_for(std::vector<std::string> texts);
  void pass_bytes(TokenId id);

  AnswerForm form_;
  Tokenizer tokenizer_;
  At at_ = At::form;
  std::vector<std::string> awaited_;  // the next one last
  StopFinder finder_{{}};
  Constraint::Place place_;
  bool at_start_ = true, may_have_gap_ = false;
  TokenSet allowed_;  // scratch
};

}  // namespace zinc
