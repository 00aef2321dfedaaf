// Sets the output constraint of a request, from its response format, its tools and its tool choice. Requests with the
// same ones share the constraint. What a constraint does not enforce is noted in the request. Thread-safe.
#pragma once

#include <optional>

#include "chat/chat_model.h"
#include "chat/chat_request.h"
#include "chat/request_error.h"
#include "engine/output_constraint.h"
#include "text/tool_schema.h"

namespace zinc {

// Of a raw completion: the response format only.
std::optional<RequestError> constrain_completion(const ChatModel& model, ChatRequest& request);
// Of a chat response: content in the response format, and tool calls as the tool choice and `strict` ask for.
std::optional<RequestError> constrain_chat(const ChatModel& model, ChatRequest& request, const ToolSchemas& tools,
                                           const ReasoningPosition& place);

}  // namespace zinc
