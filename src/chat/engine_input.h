// From a chat request to engine requests: chat template, tokens, output constraint, thinking budget. Pure and
// thread-safe.
#pragma once

#include <string>
#include <vector>

#include "chat/chat_model.h"
#include "chat/chat_request.h"
#include "chat/request_error.h"
#include "engine/request.h"
#include "text/message_parser.h"

namespace zinc {

struct EngineInput {
  std::vector<Request> requests;          // one per prompt, without client, cache namespace and sink
  std::vector<std::string> prompt_texts;  // if they are echoed
  ParserOptions parser;                   // of the output, for chat requests
};

// Adapts `request` to the chat template, and sets a random seed if it has none. The length of a prompt is not checked:
// Engine::submit does. What is not needed after this is removed from `request`.
OrRequestError<EngineInput> engine_input(const ChatModel& model, ChatRequest& request);

}  // namespace zinc
