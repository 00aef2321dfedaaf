// The token limit on reasoning for a model's family: where its reasoning begins and ends, and the tokens that end it
// early and lead into the answer.
#pragma once

#include "engine/reasoning_tracker.h"
#include "text/tool_format.h"

namespace zinc {

struct ThinkingBudgetOptions {
  int max_tokens = -1;          // -1: no limit
  bool starts_open = false;     // the prompt ends inside the reasoning
  bool may_call_tools = false;  // a tool call may follow the reasoning
};

// Without a limit the reasoning is only counted.
ThinkingBudget make_thinking_budget(const ToolFormat& format, const Tokenizer& tokenizer,
                                    const ThinkingBudgetOptions& options);

}  // namespace zinc
