// Where reasoning begins and ends in an output: the only search for its tags in the engine. Limits, counts and output
// constraints follow it token by token; the message is parsed later, from the text (text/message_parser.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "text/detokenizer.h"

namespace zinc {

// Limits reasoning. Reasoning is the text between two tags; the tags are matched in the bytes of the tokens, so any
// tokenization of them is found.
struct ThinkingBudget {
  std::string open_tag = {}, close_tag = {};  // "<think>", "</think>"; empty: reasoning is not detected
  bool starts_open = false;                   // the prompt ends inside the reasoning
  int max_tokens = -1;                        // of reasoning; -1: no limit
  // Emitted when the budget is spent, instead of sampled tokens; should close the reasoning.
  std::vector<TokenId> forced_end = {};
};

class ReasoningTracker {
 public:
  explicit ReasoningTracker(const ThinkingBudget& thinking);

  void push(std::string_view bytes);  // of the next token
  void open();                        // the last token began the opening tag, and only that tag begins with it
  bool is_open() const { return is_open_; }
  int n_opened() const { return n_opened_; }  // blocks of reasoning; the one that the prompt has opened counts
  int n_closed() const { return n_closed_; }

 private:
  std::string open_tag_, close_tag_;
  StopStringMatcher tag_;  // of the tag that is searched
  bool is_open_;
  int n_opened_, n_closed_ = 0;
};

}  // namespace zinc
