// Renders conversations with a model's chat template. Those that it refuses as they are, or that exceed the context,
// are changed as little as possible; each change is noted in the request. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "chat/chat_model.h"
#include "chat/chat_request.h"
#include "chat/request_error.h"

namespace zinc {

// Renders the conversation of a request, with its thinking mode and its tools; with drop_oldest_messages, without its
// oldest turns if they exceed the context. Adapts `request` to the template.
// REQUIRES: with continue_final_message, the last message is the assistant's.
OrRequestError<RenderedPrompt> render(const ChatModel& model, ChatRequest& request);

// Renders the conversation as it is. If the template refuses it: with its system messages joined at the head, then with
// neighboring messages of one role joined, then with the system message at the start of the first user message. The
// error is that of the first attempt.
Result<RenderedPrompt> render_adapted(const ChatPrompt& prompt, ChatTemplateInputs inputs,
                                      std::vector<std::string>& notes);

}  // namespace zinc
