// What a caller asks for: a conversation or raw prompts, whichever API dialect it came in. Written by a dialect's
// reader (server/dialect/) or the command line, turned into engine requests by engine_input(). Every default is the
// API's documented default or neutral; sampling parameters that the client did not set are the served model's defaults.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/token_id.h"
#include "engine/output_state.h"
#include "engine/speculation_options.h"

namespace zinc {

// The requested output format (structured output).
struct ResponseFormat {
  enum class Kind : uint8_t { text, json_object, json_schema, grammar, regex };
  Kind kind = Kind::text;
  std::string field;    // the request field that set it
  json::value schema;   // for json_schema
  std::string grammar;  // GBNF, or the regular expression
};

// When to unload a model that has been idle.
struct KeepAliveTime {
  std::optional<std::chrono::milliseconds> idle = {};  // nullopt: never
};

struct ToolChoice {
  bool requires_call = false;
  std::vector<std::string> names = {};  // tools that may be called; empty: all
  bool is_named = false;                // one function is named: exactly one call
};

using RawPrompt = std::variant<std::string, std::vector<TokenId>>;

struct ExtraFile {
  std::string name, text;
};

struct ChatRequest {
  std::string model;

  // A conversation for the chat template: messages as in OpenAI's chat API, with contents as plain text and tool call
  // arguments as objects.
  json::array messages;
  json::value tools;                      // an array of OpenAI's function tools; null: none
  std::vector<std::string> strict_tools;  // those whose arguments must satisfy their schema
  ToolChoice tool_choice;
  json::object template_kwargs;
  std::optional<bool> thinking;  // unset: the template's default
  std::string reasoning_effort;  // "low"; empty: the template's default
  int thinking_budget = -1;      // tokens; -1: no limit
  bool parallel_tool_calls = true;
  bool continue_final_message = false;  // the last message is an assistant prefix to continue
  bool add_generation_prompt = true;    // the prompt ends with the start of an assistant message
  bool seal_reasoning = false;          // reasoning is also returned in an opaque form that can be sent back
  bool include_reasoning = true;        // false: reasoning is not part of the response
  bool drop_oldest_messages = false;    // if the conversation exceeds the context
  bool reasoning_is_open = false;       // set by render(): the prefix ends inside the reasoning
  bool stream_tool_arguments = false;   // tool call arguments are streamed before the call is complete
  ResponseFormat response_format;

  // Or raw prompts, completed without a chat template.
  std::vector<RawPrompt> prompts;
  bool parse_special = false, add_special = true;  // of text prompts
  bool echo = false;
  std::optional<std::string> suffix;   // fill-in-the-middle: the output goes between the prompt and this text
  std::vector<ExtraFile> extra_files;  // of the same project, before a fill-in-the-middle prompt

  // Sampling, stop strings, limits, log-probabilities; what depends on the model is set by engine_input().
  GenerationOptions options;
  std::vector<std::string> sampling_fields;  // SamplingField::name of those that the request sets
  std::optional<uint64_t> seed;              // unset: a random one
  std::vector<TokenId> allowed_tokens;       // no other token is sampled; empty: all are allowed
  bool include_stop = false;                 // the stop string is part of the output
  int max_prompt_tokens = 0;  // keep only the last ones of the prompt; 0: all, kWholeContext: as many as fit
  std::string prediction;     // the expected output, for speculative decoding; empty: none
  std::optional<SpeculationMode> speculation;  // unset: the server's
  std::string cache_salt;                      // prefixes are shared only between requests with the same one
  int n = 1;
  bool stream = false;
  bool include_usage = false;
  bool include_progress = false;            // report prefill progress
  bool return_tokens = false;               // report the ids of the generated tokens
  std::optional<KeepAliveTime> keep_alive;  // of the model; unset: unchanged

  std::vector<std::string> notes;  // how the request was changed to be answered; for the log line

  static constexpr int kWholeContext = -1;

  bool is_chat() const { return prompts.empty(); }
  bool allows_parallel_calls() const { return parallel_tool_calls && !tool_choice.is_named; }
};

}  // namespace zinc
