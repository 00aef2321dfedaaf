// A conversation: a system message and turns of a question and its answer. The oldest turns may be left out of the
// prompt, so that the rest fits into the context. Plain data; one thread.
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
  std::string unanswered = {};  // the question after the last turn, if it got no answer
  size_t n_left_out = 0;        // of the turns: not part of the prompt

  bool is_empty() const { return turns.empty() && unanswered.empty(); }
  std::string title() const;  // the first line of the first question

  json::array messages() const;  // of all turns, in the format of OpenAI's chat API
  // The prompt: without the turns that are left out, followed by one more question unless that is empty.
  json::array prompt(std::string_view question) const;

  // An object with "messages", and the other fields if they are set; read() accepts it.
  json::object to_json() const;
  // From an object with "messages": an optional system message, then alternating questions and answers. The error names
  // the invalid message.
  static Result<Conversation> read(const json::value& file);

 private:
  json::array messages_from(size_t first_turn) const;
};

}  // namespace zinc
