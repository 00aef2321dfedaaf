// A conversation: a system message and turns of a question and its answer. Plain data; one thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace zinc {

struct Turn {
  std::string question, answer;
  std::string reasoning = {};  // before the answer
};

struct Conversation {
  std::string system = {};
  std::vector<Turn> turns = {};

  json::array messages() const;                                // in the format of OpenAI's chat API
  json::array messages_with(std::string_view question) const;  // followed by one more question

  // From an object with "messages": an optional system message, then alternating questions and answers. The error names
  // the invalid message.
  static Result<Conversation> read(const json::value& file);
};

}  // namespace zinc
