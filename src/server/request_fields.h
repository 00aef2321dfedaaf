// Request fields shared by several API dialects: sampling, lengths, thinking, tools, conversations.
#pragma once

#include <span>

#include "chat/chat_request.h"
#include "server/fields.h"
#include "server/limits.h"
#include "text/thinking_support.h"

namespace zinc {

extern const std::span<const FieldDoc> kSamplingFields;
void read_sampling(const FieldReader& fields, ChatRequest& out);
// Sets the sampling parameters that the request leaves out.
void apply_sampling_defaults(const SamplingParams& defaults, ChatRequest& out);

extern const std::span<const FieldDoc> kThinkingFields;
void read_thinking(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out);
// Switches thinking on or off; an error if another field contradicts it.
void set_thinking(const FieldReader& fields, std::string_view name, bool on, ChatRequest& out);
// An error unless it is none, minimal, low, medium, high, xhigh or max.
bool check_effort(const FieldReader& fields, std::string_view name, const std::string& effort);
// Checks and sets it; "none" switches thinking off, the others on.
void set_effort(const FieldReader& fields, std::string_view name, const std::string& effort, ChatRequest& out);
void read_think(const FieldReader& fields, ChatRequest& out);            // Ollama's: a boolean or an effort
void read_thinking_object(const FieldReader& fields, ChatRequest& out);  // Anthropic's: type and budget_tokens

void read_stop(const FieldReader& fields, std::string_view name, const ServerLimits& limits, ChatRequest& out);
void read_n(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out);
// An error if another field has set the output format already.
void set_response_format(const FieldReader& fields, std::string_view name, ResponseFormat format, ChatRequest& out);
ResponseFormat schema_format(const json::value* schema);  // nullptr: any JSON object
// {"type": "text" | "json_object" | "json_schema"}, with the schema nested as in OpenAI's or Anthropic's API.
void read_response_format(const FieldReader& fields, std::string_view name, ChatRequest& out);
// `grammar` and `json_schema`, as in llama.cpp's server.
extern const std::span<const FieldDoc> kGrammarFields;
void read_grammar_fields(const FieldReader& fields, ChatRequest& out);
// 1 or more; -1 means no limit, which is 0 in the result.
std::optional<int> read_token_limit(const FieldReader& fields, std::string_view name);
std::vector<TokenId> read_token_ids(const FieldReader& fields, std::string_view name);

// `prompt` of completions: a string, an array of token ids, or an array of either.
void read_prompts(const FieldReader& fields, ChatRequest& out);

// OpenAI's messages and tools.
void read_messages(const FieldReader& fields, ChatRequest& out);
void read_tools(const FieldReader& fields, ChatRequest& out);
// A word, a named function or allowed_tools.
void read_tool_choice(const FieldReader& fields, ChatRequest& out);

// The text of a message's content: a string, or an array of text parts. `text_types` are the accepted part types.
std::string content_text(const json::value& content, const std::string& path,
                         std::span<const std::string_view> text_types, RequestErrors& errors);
// {"id", "type": "function", "function": {"name", "arguments"}}, the arguments as an object if they are valid JSON.
json::object tool_call_entry(std::string_view id, std::string_view name, const json::value& arguments);
// Reads `tools`; `read_one` returns each in OpenAI's format or adds an error. An empty object: the tool is left out,
// which is noted, because only the provider of the API could run it.
void read_tool_list(const FieldReader& fields, ChatRequest& out, json::object (*read_one)(const FieldReader& tool));
// Name, description and the schema in field `schema`, in OpenAI's format.
json::object function_tool(const FieldReader& fields, std::string_view schema);

}  // namespace zinc
