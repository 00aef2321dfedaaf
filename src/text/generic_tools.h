// Tools for chat templates that do not support them: a system prompt that describes the functions and how to call them,
// and earlier calls and their results as plain text. Models were not trained on this prompt; constrained decoding
// (tool_choice) makes their calls valid.
#pragma once

#include "base/json.h"
#include "text/tool_format.h"

namespace zinc {

struct GenericToolsPrompt {
  const json::value& tools;     // an array of OpenAI's function tools, or null
  const ToolFormat& format;     // syntax of calls
  bool supports_system = true;  // else the description goes into the first user message
};

bool has_tool_messages(const json::array& messages);  // calls or results
// Rewrites the conversation. Contents must be text.
void add_generic_tools(const GenericToolsPrompt& prompt, json::array& messages);

}  // namespace zinc
