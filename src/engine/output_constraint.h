// Structured output and tool calls: a grammar and the part of the output it applies to. Models reason before the
// content; that text is not constrained.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "constrain/constraint.h"
#include "engine/reasoning_tracker.h"
#include "text/tool_format.h"

namespace zinc {

struct OutputConstraint {
  std::shared_ptr<Constraint> grammar = {};  // nullptr: unconstrained
  // First token of reasoning that may come before the constrained part, once. Reasoning that the prompt has opened
  // comes before it in any case.
  std::optional<TokenId> reasoning_open = {};
  std::optional<TokenId> separator = {};  // allowed once before the constrained part
  bool has_reasoning_in_grammar = false;  // formats with channels
};

// Where reasoning may occur in an output.
struct ReasoningPosition {
  bool starts_open = false;  // the prompt ends inside the reasoning
  bool is_allowed = true;
};
// Exempts the reasoning of the model's family from the constraint. In formats with channels the grammar has to include
// it (constrain/output_grammar.h).
void exempt_reasoning(const ToolFormat& format, const Tokenizer& tokenizer, const ReasoningPosition& place,
                      OutputConstraint& constraint);

// Enforces the constraint on one output. One thread.
class ConstraintTracker {
 public:
  // `reasoning` before the first token of the output.
  ConstraintTracker(OutputConstraint constraint, const Tokenizer& tokenizer, const ReasoningTracker& reasoning);

  Result<bool> allows(TokenId id);    // whether it may be the next token
  Result<const TokenSet*> allowed();  // every token that may be next; nullptr: all. Valid until the next call
  // Advances by one token, which `reasoning` has seen. True: the output is complete and must end.
  Result<bool> accept(TokenId id, ReasoningTracker& reasoning);
  // A token that is certainly not reasoning was accepted.
  bool has_started() const { return is_inside_ && !at_start_ && !constraint_.has_reasoning_in_grammar; }

 private:
  bool opens_reasoning(TokenId id) const { return at_start_ && constraint_.reasoning_open == id; }
  bool is_separator(TokenId id) const { return at_start_ && may_have_separator_ && constraint_.separator == id; }

  OutputConstraint constraint_;
  Tokenizer tokenizer_;
  bool is_inside_;    // the constraint applies
  int n_closed_ = 0;  // ReasoningTracker::n_closed() when reasoning began that is not constrained
  Constraint::Cursor cursor_;
  bool at_start_ = true, may_have_separator_ = false;
  TokenSet allowed_;  // scratch
};

}  // namespace zinc
