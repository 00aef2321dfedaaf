// What a client asked for, whichever of the four APIs it used. Made by a form's reader (server/form/), turned into
// tokens by prepare(). Every default is the API's documented one or neutral; nothing is added that the client did not
// ask for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/token_id.h"
#include "graph/sampling_params.h"

namespace zinc {

// The form an answer has to have.
struct FormRequest {
  enum class Kind : uint8_t { any, json_object, json_schema, grammar };
  Kind kind = Kind::any;
  std::string field;   // that asked for it
  json::value schema;  // of json_schema
  std::string grammar;
};

using RawPrompt = std::variant<std::string, std::vector<TokenId>>;

struct ChatRequest {
  std::string model;

  // A conversation, for the chat template: messages as OpenAI's chat API has them, contents as plain text, arguments
  // of calls as objects.
  json::array messages;
  json::value tools;  // an array of OpenAI's function tools; null: none
  json::object template_kwargs;
  std::optional<bool> thinking;  // unset: what the template does by itself
  int thinking_budget = -1;      // tokens; -1: no limit
  bool parallel_tool_calls = true;
  bool continues_last = false;     // the last message is the beginning of the answer
  bool thought_is_open = false;    // set by render(): that beginning ended inside a thought
  bool streams_arguments = false;  // a call's arguments stream as they come, before they are known to be whole
  FormRequest form;

  // Or raw prompts, continued as they are.
  std::vector<RawPrompt> prompts;
  bool parse_special = false, add_special = true;  // of text prompts
  bool echo = false;

  SamplingParams sampling;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  int max_tokens = 0;  // 0: until the context is full
  int n = 1;
  int n_top_logprobs = -1;  // -1: no log-probabilities
  bool ignore_eos = false;
  bool stream = false;
  bool include_usage = false;
  bool include_progress = false;  // how far the prompt has been read, while it is

  bool is_chat() const { return prompts.empty(); }
};

}  // namespace zinc
