// Structured output and tool calls: a grammar and the part of the output it applies to. Models reason before the
// content; that text is not constrained.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "constrain/constraint.h"
#include "text/detokenizer.h"
#include "text/tool_format.h"

namespace zinc {

struct OutputConstraint {
  // Reasoning that may come before the constrained part, once.
  struct Reasoning {
    TokenId open;  // its first token
    std::string close;
  };

  std::shared_ptr<Constraint> grammar = {};  // nullptr: unconstrained
  std::string starts_after = {};             // the constraint starts after this text; empty: at once
  std::optional<Reasoning> reasoning = {};
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
  ConstraintTracker(OutputConstraint constraint, const Tokenizer& tokenizer);

  Result<bool> allows(TokenId id);    // whether it may be the next token
  Result<const TokenSet*> allowed();  // every token that may be next; nullptr: all. Valid until the next call
  Result<bool> accept(TokenId id);    // advances by one token; true: the output is complete and must end
  // A token that is certainly not reasoning was accepted.
  bool has_started() const { return is_inside_ && !at_start_ && !constraint_.has_reasoning_in_grammar; }

 private:
  bool opens_reasoning(TokenId id) const {
    return at_start_ && constraint_.reasoning && constraint_.reasoning->open == id;
  }
  bool is_separator(TokenId id) const { return at_start_ && may_have_separator_ && constraint_.separator == id; }
  void wait_for(std::string text);
  void scan_bytes(TokenId id);

  OutputConstraint constraint_;
  Tokenizer tokenizer_;
  bool is_inside_ = true;         // the constraint applies
  StopStringMatcher finder_{{}};  // of the text before the constrained part
  Constraint::Cursor cursor_;
  bool at_start_ = true, may_have_separator_ = false;
  TokenSet allowed_;  // scratch
};

}  // namespace zinc
