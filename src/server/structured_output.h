// The output constraint of a request, from its response format, its tools and its tool choice. Requests with the same
// ones share the constraint. Thread-safe.
#pragma once

#include <optional>

#include "engine/output_constraint.h"
#include "server/prepare.h"
#include "text/tool_schema.h"

namespace zinc {

// Of a raw completion: the response format only.
std::optional<ApiError> constrain_completion(PreparedRequest& prepared);
// Of a chat response: content in the response format, and tool calls as the tool choice and `strict` ask for.
std::optional<ApiError> constrain_chat(PreparedRequest& prepared, const ToolSchemas& tools,
                                       const ReasoningPosition& place);

}  // namespace zinc
