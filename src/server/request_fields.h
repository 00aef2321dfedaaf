// Fields that several API forms share: sampling, lengths, thinking, tools, conversations.
#pragma once

#include <span>

#include "server/chat_request.h"
#include "server/fields.h"
#include "server/limits.h"

namespace zinc {

extern const std::span<const FieldDoc> kSamplingFields;
void read_sampling(const FieldReader& fields, ChatRequest& out);

extern const std::span<const FieldDoc> kThinkingFields;
void read_thinking(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out);
// Switches thinking on or off; an error where another field has said the opposite.
void set_thinking(const FieldReader& fields, std::string_view name, bool on, ChatRequest& out);
// An error unless it is one of none, minimal, low, medium, high, xhigh.
bool check_effort(const FieldReader& fields, std::string_view name, const std::string& effort);
// Checks it and passes it on; "none" switches thinking off, the others on.
void set_effort(const FieldReader& fields, std::string_view name, const std::string& effort, ChatRequest& out);

void read_stop(const FieldReader& fields, std::string_view name, const ServerLimits& limits, ChatRequest& out);
void read_n(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out);
// {"type": "text" | "json_object" | "json_schema"}; the schema lies in it as OpenAI's APIs or Anthropic's have it.
void read_response_format(const FieldReader& fields, std::string_view name, ChatRequest& out);
// `grammar` and `json_schema`, as llama.cpp's server has them.
extern const std::span<const FieldDoc> kFormFields;
void read_form(const FieldReader& fields, ChatRequest& out);
std::optional<int> read_token_limit(const FieldReader& fields, std::string_view name);

// OpenAI's messages and tools.
void read_messages(const FieldReader& fields, ChatRequest& out);
void read_tools(const FieldReader& fields, ChatRequest& out);
// "auto" and "none"; what would force a call is a named error.
void read_tool_choice(const FieldReader& fields, ChatRequest& out);

// The text of a message's content: a string, or parts that are all text. `text_types` are the part types taken.
std::string content_text(const json::value& content, const std::string& path,
                         std::span<const std::string_view> text_types, RequestErrors& errors);
// {"id", "type": "function", "function": {"name", "arguments"}}, the arguments as an object where they are JSON.
json::object call_entry(std::string_view id, std::string_view name, const json::value& arguments);
// `tools`: each is read by `read_one`, which gives it in OpenAI's form or adds an error.
void read_tool_list(const FieldReader& fields, ChatRequest& out, json::object (*read_one)(const FieldReader& tool));
// Name, description and the schema of that name, in OpenAI's form.
json::object function_tool(const FieldReader& fields, std::string_view schema);
// An error: its type is not that of a function the client has.
json::object refuse_own_tool(const FieldReader& tool, std::string_view expected);

}  // namespace zinc
