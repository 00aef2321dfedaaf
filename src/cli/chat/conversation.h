// What was said so far: a system message and turns of a question and its answer. Plain data; one thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace zinc {

struct Turn {
  std::string question, answer;
  std::string reasoning = {};  // thoughts before the answer
};

struct Conversation {
  std::string system = {};
  std::vector<Turn> turns = {};

  json::array messages() const;                                // as OpenAI's chat API has them
  json::array messages_with(std::string_view question) const;  // and one more question

  // An object whose "messages" are an optional system message, then questions and answers in turn. The error names the
  // message that does not fit.
  static Result<Conversation> read(const json::value& file);
};

}  // namespace zinc
