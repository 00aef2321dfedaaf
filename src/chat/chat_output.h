// One output of a request: text from the engine in, deltas of the message out. One thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "chat/chat_model.h"
#include "chat/chat_request.h"
#include "engine/request.h"
#include "text/message_parser.h"

namespace zinc {

class ChatOutput {
 public:
  // `parser`: EngineInput::parser. Of a raw prompt, all of the output is content.
  ChatOutput(const ChatModel& model, const ChatRequest& request, const ParserOptions& parser);

  std::vector<Delta> push(std::string_view text);
  // The rest, with the stop string if the request includes it.
  std::vector<Delta> finish(const Outcome& outcome);
  // A tool call has ended, and the request does not allow another: the caller cancels the engine request.
  bool is_complete() const { return is_complete_; }

 private:
  std::vector<Delta> without_excluded(std::vector<Delta> deltas);

  std::optional<MessageParser> parser_;  // for chat requests
  bool include_reasoning_, include_stop_, allows_parallel_calls_;
  bool is_complete_ = false;
};

}  // namespace zinc
