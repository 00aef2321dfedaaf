// Structured output: a grammar and the part of the output it applies to. Models reason before the content or call a
// tool instead of writing content; that text is not constrained.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "constrain/constraint.h"
#include "text/detokenizer.h"
#include "text/tool_format.h"

namespace zinc {

struct OutputConstraint {
  // Unconstrained text that may appear instead of the constrained part, or before it.
  struct Alternative {
    TokenId token;          // its first token
    std::string ends_with;  // the constraint applies after this text; empty: it never applies
  };

  std::shared_ptr<Constraint> grammar = {};  // nullptr: unconstrained
  // The constraint starts after these texts, in this order with any text between; empty: at once.
  std::vector<std::string> starts_after = {};
  bool may_end_before_start = false;  // the output may end before the constraint starts
  std::vector<Alternative> alternatives = {};
  std::optional<TokenId> separator = {};  // allowed once before the constrained part
};

// Parts of an output besides its content.
struct OutputParts {
  bool starts_in_reasoning = false;  // the prompt ends inside the reasoning
  bool may_reason = true;
  bool may_call_tools = false;
};
// Applies the constraint to the content only, in the output format of the model's family. Fails if tool calls are
// possible and their start cannot be told from content.
Status scope_to_content(const ToolFormat& format, const Tokenizer& tokenizer, const OutputParts& parts,
                        OutputConstraint& constraint);

// Enforces the constraint on one output. One thread.
class ConstraintTracker {
 public:
  ConstraintTracker(OutputConstraint constraint, const Tokenizer& tokenizer);

  Result<bool> allows(TokenId id);    // whether it may be the next token
  Result<const TokenSet*> allowed();  // every token that may be next; nullptr: all. Valid until the next call
  Result<bool> accept(TokenId id);    // advances by one token; true: the output is complete and must end
  // At least one constrained token was accepted.
  bool has_started() const { return phase_ == Phase::inside && !at_start_; }

 private:
  enum class Phase { before, inside, after };
  const OutputConstraint::Alternative* find_alternative(TokenId id) const;
  bool is_separator(TokenId id) const { return at_start_ && may_have_separator_ && constraint_.separator == id; }
  void wait_for_texts(std::vector<std::string> texts);
  void scan_bytes(TokenId id);

  OutputConstraint constraint_;
  Tokenizer tokenizer_;
  Phase phase_ = Phase::inside;
  std::vector<std::string> pending_texts_;  // the next one is at the back
  StopStringMatcher finder_{{}};
  Constraint::Cursor cursor_;
  bool at_start_ = true, may_have_separator_ = false;
  TokenSet allowed_;  // scratch
};

}  // namespace zinc
