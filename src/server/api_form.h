// One of the APIs a conversation can be had through: how its requests are read and how its answers are written. A form
// knows nothing of connections, engines or tokens; it gets deltas and writes them. One file per form in server/form/.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/chat_request.h"
#include "server/fields.h"
#include "server/limits.h"
#include "text/message.h"

namespace zinc {

// What is known of an answer before it begins.
struct AnswerHead {
  std::string id;     // without the form's prefix
  std::string model;  // as the server names it
  int64_t created_s = 0;
  int n_prompt_tokens = 0;
  bool include_usage = false;
  bool with_logprobs = false;
  json::object echoed = {};  // fields of the request that the form's answers repeat
};

// A token with its log-probabilities, as text.
struct ShownToken {
  std::string text;  // its bytes, perhaps a part of a character
  double logprob = 0;
  std::vector<ShownToken> top = {};
};

// One whole answer.
struct Choice {
  Message message;
  StopReason reason = StopReason::end_token;
  std::string stop_string;
  Usage usage;
  Timings timings;
  std::vector<ShownToken> tokens;  // where log-probabilities were asked for

  bool calls_tools() const { return !message.tool_calls.empty(); }
};

// Token counts of all choices: the prompt counts once for each prompt.
struct UsageTotal {
  int n_prompt = 0, n_cached = 0, n_completion = 0, n_reasoning = 0;
};

// Writes server-sent events. Called in order: begin, then progress, deltas and ends of choices, then end or error.
class StreamWriter {
 public:
  virtual ~StreamWriter() = default;
  virtual void begin(std::string& out) = 0;
  // Where it was asked for; only the chat form can say it.
  virtual void progress(int /*choice*/, const PromptProgress&, std::string& /*out*/) {}
  virtual void counted(int /*choice*/, int /*n_tokens*/) {}  // made so far; for the deltas that follow
  // `tokens`: those chosen since the last delta of this choice, where log-probabilities were asked for.
  virtual void delta(int choice, const Delta& delta, std::span<const ShownToken> tokens, std::string& out) = 0;
  virtual void end_choice(int index, const Choice& choice, std::span<const ShownToken> tokens, std::string& out) = 0;
  virtual void end(const UsageTotal& usage, std::string& out) = 0;
  virtual void error(const ApiError& error, std::string& out) = 0;
};

struct ApiForm {
  ErrorForm error_form = ErrorForm::openai;
  std::vector<std::span<const FieldDoc>> fields;  // what a request may have
  void (*read)(const json::object& body, const ServerLimits& limits, RequestErrors& errors, ChatRequest& out);
  json::object (*echo)(const ChatRequest& request, const json::object& body);  // for AnswerHead::echoed
  std::unique_ptr<StreamWriter> (*make_stream)(AnswerHead head);
  json::object (*whole)(const AnswerHead& head, std::span<const Choice> choices, const UsageTotal& usage);
};

const ApiForm& chat_form();
const ApiForm& completions_form();
const ApiForm& responses_form();
const ApiForm& messages_form();
// The conversation of a messages request, as its tokens are counted: nothing else is required.
void read_countable(const json::object& body, RequestErrors& errors, ChatRequest& out);

// What an object of OpenAI's completions is called.
struct CompletionName {
  std::string_view id_prefix, whole, piece;  // "chatcmpl-", "chat.completion", "chat.completion.chunk"
};

// What the streams of OpenAI's completions have in common: events begin alike and end alike. Text goes out as fixed
// text around one escaped string: no tree is built for a token.
class CompletionEvents : public StreamWriter {
 public:
  void begin(std::string&) override {}
  void end(const UsageTotal& usage, std::string& out) override;
  void error(const ApiError& error, std::string& out) override;

 protected:
  CompletionEvents(const CompletionName& name, AnswerHead head);
  // One event with one choice; `inside` are the choice's members behind its index, `beside` follow the choices.
  void event(int choice, std::string_view inside, std::string_view beside, std::string& out) const;

  const AnswerHead head_;

 private:
  std::string start_;  // of every event
};

// The whole answer of OpenAI's completions.
json::object completion_object(const CompletionName& name, const AnswerHead& head, json::array choices,
                               const UsageTotal& usage, const Choice& first);

// Shared by OpenAI's forms.
std::string_view finish_reason(const Choice& choice);  // "stop", "length", "tool_calls"
json::object usage_json(const UsageTotal& usage);
json::object timings_json(const Choice& choice);
json::array warnings_json(const Message& message);
std::string json_text(std::string_view text);  // as a JSON string
std::string sse_data(const json::value& value);
std::string sse_event(std::string_view event, const json::value& value);

}  // namespace zinc
