// An API dialect (OpenAI chat, completions, responses; Anthropic messages; Ollama; llama.cpp): parses its requests and
// writes its responses. A dialect does not depend on connections, engines or tokens; it writes the deltas it is given.
// One file per dialect in server/dialect/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_request.h"
#include "engine/request.h"
#include "server/fields.h"
#include "server/limits.h"
#include "server/reply.h"
#include "text/message.h"

namespace zinc {

// Fields of a response that are known before generation starts.
struct ResponseMetadata {
  std::string id;     // without the dialect's prefix
  std::string model;  // its name on this server
  int64_t created_s = 0;
  int n_prompt_tokens = 0;
  double load_s = 0;  // how long the request waited for its model to load
  bool include_usage = false;
  bool with_logprobs = false;
  bool with_tokens = false;                                            // the ids of the generated tokens
  bool is_echoed = false;                                              // the prompt comes before the output
  json::object echoed = {};                                            // request fields that the response repeats
  bool seal_reasoning = false;                                         // ChatRequest::seal_reasoning
  std::function<void(const json::object& response)> on_finished = {};  // with a complete Responses object; any thread
};

// A token's text with its log-probabilities.
struct LogprobToken {
  std::string text;    // its bytes; may be part of a character
  double logprob = 0;  // NaN: none, for the first token of a prompt
  std::vector<LogprobToken> top = {};
  TokenId id = 0;
};

// One complete choice.
struct Choice {
  Message message;
  StopReason reason = StopReason::end_token;
  std::string stop_string;
  Usage usage;
  Timings timings;
  std::vector<LogprobToken> tokens;         // if log-probabilities were requested
  std::vector<LogprobToken> prompt_tokens;  // if those of the prompt were requested; the first has none
  std::vector<std::string> unenforced;      // parts of a JSON schema that the output was not held to

  bool calls_tools() const { return !message.tool_calls.empty(); }
};

// Token counts summed over all choices; each prompt counts once.
struct UsageTotal {
  int n_prompt = 0, n_cached = 0, n_completion = 0, n_reasoning = 0;
  int n_draft_accepted = 0, n_draft_rejected = 0;
};

// Writes server-sent events or lines of JSON. Call order: begin, then progress, deltas and ends of choices, then end or
// error.
class StreamWriter {
 public:
  virtual ~StreamWriter() = default;
  virtual void begin(std::string& out) = 0;
  // If the request set return_progress; only the chat dialect reports it.
  virtual void progress(int /*choice*/, const PromptProgress&, std::string& /*out*/) {}
  virtual void token_count(int /*choice*/, int /*n_tokens*/) {}  // tokens generated so far; for the deltas that follow
  // `tokens`: generated since the last delta of this choice, if log-probabilities were requested.
  virtual void delta(int choice, const Delta& delta, std::span<const LogprobToken> tokens, std::string& out) = 0;
  virtual void end_choice(int index, const Choice& choice, std::span<const LogprobToken> tokens, std::string& out) = 0;
  virtual void end(const UsageTotal& usage, std::string& out) = 0;
  virtual void error(const ApiError& error, std::string& out) = 0;
};

struct ApiDialect {
  ErrorFormat error_format = ErrorFormat::openai;
  std::vector<std::span<const FieldDoc>> fields;       // the request fields
  std::span<const UnsupportedField> unsupported = {};  // request fields that are rejected with a reason
  std::string_view stream_type = kEventStreamType;     // content type of a streamed response
  void (*read)(const json::object& body, const ServerLimits& limits, RequestErrors& errors, ChatRequest& out);
  json::object (*echo)(const ChatRequest& request, const json::object& body);  // for ResponseMetadata::echoed
  std::unique_ptr<StreamWriter> (*make_stream)(ResponseMetadata metadata);
  json::object (*make_response)(const ResponseMetadata& metadata, std::span<const Choice> choices,
                                const UsageTotal& usage);
};

const ApiDialect& chat_dialect();
const ApiDialect& completions_dialect();
const ApiDialect& responses_dialect();
const ApiDialect& messages_dialect();
const ApiDialect& ollama_chat_dialect();
const ApiDialect& ollama_generate_dialect();
const ApiDialect& llama_completion_dialect();
const ApiDialect& llama_infill_dialect();
// Reads only the conversation of a messages request, for counting its tokens: other fields are optional.
void read_countable(const json::object& body, RequestErrors& errors, ChatRequest& out);

// Object names of OpenAI's two completions APIs.
struct CompletionObjectNames {
  std::string_view id_prefix, object, chunk_object;  // "chatcmpl-", "chat.completion", "chat.completion.chunk"
};

// Base of OpenAI's two completions streams: common start and end of events. Events are formatted directly around one
// escaped string; no JSON tree is built per token.
class CompletionStreamWriter : public StreamWriter {
 public:
  void begin(std::string&) override {}
  void end(const UsageTotal& usage, std::string& out) override;
  void error(const ApiError& error, std::string& out) override;

 protected:
  CompletionStreamWriter(const CompletionObjectNames& names, ResponseMetadata metadata);
  // One event with one choice: `choice_members` follow the choice's index, `extra_members` follow the choices.
  void event(int choice, std::string_view choice_members, std::string_view extra_members, std::string& out) const;

  const ResponseMetadata metadata_;

 private:
  std::string event_prefix_;  // of every event
};

// The response object of OpenAI's completions APIs.
json::object completion_object(const CompletionObjectNames& names, const ResponseMetadata& metadata,
                               json::array choices, const UsageTotal& usage, const Choice& first);

// Shared by OpenAI's dialects.
std::string_view finish_reason(const Choice& choice);  // "stop", "length", "tool_calls"
json::object usage_json(const UsageTotal& usage);
json::object timings_json(const Choice& choice);
json::array warnings_json(const Choice& choice);
enum class TokenIds { omit, include };
// [{"token", "logprob", "bytes", "top_logprobs"}], with "id" as llama.cpp has it.
json::array logprobs_json(std::span<const LogprobToken> tokens, TokenIds ids = TokenIds::omit);
std::string quote_json(std::string_view text);  // as a JSON string literal
std::string sse_data(const json::value& value);
std::string sse_event(std::string_view event, const json::value& value);

}  // namespace zinc
