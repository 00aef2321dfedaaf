// POST /v1/chat/completions (OpenAI).
#include <fmt/format.h>

#include <map>

#include "server/api_dialect.h"
#include "server/extension_fields.h"
#include "server/request_fields.h"

namespace zinc {
namespace {

constexpr FieldDoc kFields[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"messages", "array",
     "Required. System, developer, user, assistant and tool messages; content is a string or an array of text parts. "
     "Assistant messages may have tool_calls and reasoning_content."},
    {"tools", "array",
     "Functions the model may call. Chat templates without tools get a generic prompt. Tools of other types are "
     "left out. strict: arguments always satisfy the schema."},
    {"tool_choice", "",
     "auto (default), none, required, {\"type\": \"function\", ...} or allowed_tools. A forced call has arguments that "
     "satisfy their schema."},
    {"parallel_tool_calls", "boolean", "false: at most one tool call. Default true."},
    {"stream_tool_arguments", "boolean",
     "true: streams tool call arguments as they are generated. Default false: a call is sent when complete, so that a "
     "malformed one can be returned as text."},
    {"response_format", "object",
     "Structured output: {\"type\": \"text\"} (default), json_object, or json_schema with json_schema.schema."},
    {"stream", "boolean", "Streams the response as server-sent events. Default false."},
    {"stream_options", "object", "include_usage: a final event with token counts. Default false."},
    {"return_progress", "boolean",
     "Adds prompt_progress to stream events during prefill, then completion_tokens (as in llama.cpp). Default false."},
    {"continue_final_message", "boolean",
     "The last message is an assistant prefix that the output continues (as in vLLM); only new text is returned. "
     "Default false."},
    {"add_generation_prompt", "boolean",
     "false: the prompt does not start an assistant message; if the last message is the assistant's, it is continued. "
     "Default true."},
    {"documents", "array", "Documents for the chat template."},
    {"max_tokens", "integer", "Maximum output tokens, reasoning included. Default, and -1: until the context is full."},
    {"max_completion_tokens", "integer", "Alias of max_tokens."},
    {"n", "integer", "Number of choices, at most 128; they differ in their random stream, not their seed. Default 1."},
    {"stop", "",
     "A string or up to 16, of at most 256 bytes each; generation stops there, also in reasoning. Not part of the "
     "output."},
    {"logprobs", "boolean",
     "Returns log-probabilities of all generated tokens, reasoning and tool calls included. Default false."},
    {"top_logprobs", "integer", "Alternatives per token, 0 to 20; requires logprobs. Default 0."},
    {"prediction", "object",
     "Predicted output: type \"content\" and content, a string or text parts. What the output repeats of it is "
     "generated "
     "faster; the output does not change."},
};
// Accepted without effect: they concern a provider's accounting, not the output.
constexpr FieldDoc kIgnored[] = {
    {"user", "string", "No effect."},
    {"metadata", "object", "No effect."},
    {"store", "boolean", "No effect: nothing is stored."},
    {"service_tier", "string", "No effect."},
    {"prompt_cache_key", "string", "No effect: shared prefixes are found automatically."},
    {"prompt_cache_retention", "string", "No effect."},
    {"prompt_cache_options", "object", "No effect."},
    {"safety_identifier", "string", "No effect."},
    {"verbosity", "string", "No effect."},
    {"moderation", "object", "No effect."},
    {"web_search_options", "object", "No effect: this server has no built-in tools."},
};
constexpr UnsupportedField kUnsupported[] = {
    {"functions", "use 'tools'"},
    {"function_call", "use 'tool_choice'"},
    {"audio", "this server supports text only"},
    {"chat_template", "the model's template is used; start the server with another one"},
};

void read_stream_options(const FieldReader& fields, ChatRequest& out) {
  const json::object* options = fields.object("stream_options");
  if (!options) return;
  const FieldReader inside(*options, "stream_options.", fields.errors());
  out.include_usage = inside.boolean("include_usage").value_or(false);
}

// The last message must be an assistant prefix that can be continued.
void read_continuation(const FieldReader& fields, ChatRequest& out) {
  out.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  const bool wants_prompt = fields.boolean("add_generation_prompt").value_or(true);
  if (out.messages.empty()) return;
  const json::object& last = out.messages.back().get_object();
  const bool is_prefix = last.at("role").get_string() == "assistant" && !last.contains("tool_calls");
  if (!wants_prompt && is_prefix) out.continue_final_message = true;
  out.add_generation_prompt = wants_prompt || out.continue_final_message;
  if (!out.continue_final_message || is_prefix) return;
  fields.errors().add(
      "continue_final_message",
      "'continue_final_message' requires that the last message is an assistant message without tool calls");
}

void read_prediction(const FieldReader& fields, ChatRequest& out) {
  const json::object* prediction = fields.object("prediction");
  if (!prediction) return;
  const FieldReader inside(*prediction, "prediction.", fields.errors());
  if (inside.required_text("type") != "content") {
    return fields.errors().add("prediction.type", "'prediction.type' must be \"content\"");
  }
  constexpr std::string_view kTextParts[] = {"text"};
  if (const json::value* content = inside.value("content")) {
    out.prediction = content_text(*content, "prediction.content", kTextParts, fields.errors());
  }
}

void read_modalities(const FieldReader& fields) {
  for (const std::string& modality : fields.texts("modalities")) {
    if (modality != "text") {
      fields.errors().add(unsupported_field("modalities", "'modalities' may only be [\"text\"]"));
    }
  }
}

void read(const json::object& body, const ServerLimits& limits, RequestErrors& errors, ChatRequest& out) {
  const FieldReader fields(body, "", errors);
  static constexpr FieldDoc kModalities[] = {{"modalities", "array", "[\"text\"]"}};
  fields.check_known(
      {kFields, kIgnored, kModalities, kGrammarFields, kExtensionFields, kSamplingFields, kThinkingFields},
      kUnsupported);
  out.model = fields.text("model").value_or("");
  read_messages(fields, out);
  read_continuation(fields, out);
  read_tools(fields, out);
  read_tool_choice(fields, out);
  read_modalities(fields);
  read_prediction(fields, out);
  out.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  out.stream_tool_arguments = fields.boolean("stream_tool_arguments").value_or(false);
  read_response_format(fields, "response_format", out);
  read_grammar_fields(fields, out);
  out.stream = fields.boolean("stream").value_or(false);
  read_stream_options(fields, out);
  out.include_progress = fields.boolean("return_progress").value_or(false);
  const std::optional<int> max_tokens = read_token_limit(fields, "max_tokens");
  const std::optional<int> max_completion = read_token_limit(fields, "max_completion_tokens");
  if (max_tokens && max_completion && *max_tokens != *max_completion) {
    errors.add("max_tokens", "'max_tokens' and 'max_completion_tokens' differ; use only one of them");
  }
  out.options.max_tokens = max_completion.value_or(max_tokens.value_or(0));
  read_n(fields, limits, out);
  read_stop(fields, "stop", limits, out);
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, limits.top_logprobs);
  if (top && !logprobs) errors.add("top_logprobs", "'top_logprobs' requires 'logprobs': true");
  if (logprobs) out.options.n_top_logprobs = static_cast<int>(top.value_or(0));
  read_sampling(fields, out);
  read_thinking(fields, limits, out);
  read_extensions(fields, out);
  if (const json::array* documents = fields.array("documents")) out.template_kwargs["documents"] = *documents;
}

json::object choice_logprobs(std::span<const LogprobToken> tokens) {
  json::object out;
  out["content"] = logprobs_json(tokens);
  out["refusal"] = nullptr;
  return out;
}

constexpr CompletionObjectNames kName = {"chatcmpl-", "chat.completion", "chat.completion.chunk"};

class ChatStream final : public CompletionStreamWriter {
 public:
  explicit ChatStream(ResponseMetadata metadata) : CompletionStreamWriter(kName, std::move(metadata)) {}

  void progress(int choice, const PromptProgress& progress, std::string& out) override {
    open_choice(choice, out);
    event(choice, R"("delta":{},"logprobs":null,"finish_reason":null)",
          fmt::format(R"(,"prompt_progress":{{"total":{},"cache":{},"processed":{}}})", progress.n_total,
                      progress.n_cached, progress.n_done),
          out);
  }

  void token_count(int choice, int n_tokens) override {
    if (n_tokens_.size() <= static_cast<size_t>(choice)) n_tokens_.resize(static_cast<size_t>(choice) + 1);
    n_tokens_[static_cast<size_t>(choice)] = n_tokens;
  }

  void delta(int choice, const Delta& delta, std::span<const LogprobToken> tokens, std::string& out) override {
    if (const auto* text = std::get_if<ContentDelta>(&delta)) {
      chunk(choice, fmt::format(R"("content":{})", quote_json(text->text)), tokens, out);
    } else if (const auto* reasoning = std::get_if<ReasoningDelta>(&delta)) {
      chunk(choice, fmt::format(R"("reasoning_content":{})", quote_json(reasoning->text)), tokens, out);
    } else if (const auto* call = std::get_if<CallStart>(&delta)) {
      chunk(choice,
            fmt::format(
                R"("tool_calls":[{{"index":{},"id":{},"type":"function","function":{{"name":{},"arguments":""}}}}])",
                n_calls_[choice]++, quote_json(call->id), quote_json(call->name)),
            tokens, out);
    } else if (const auto* arguments = std::get_if<ArgumentsDelta>(&delta)) {
      chunk(choice,
            fmt::format(R"("tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}])", n_calls_[choice] - 1,
                        quote_json(arguments->text)),
            tokens, out);
    }
  }

  void end_choice(int index, const Choice& choice, std::span<const LogprobToken> tokens, std::string& out) override {
    open_choice(index, out);
    std::string extra_members = ",\"timings\":" + to_json(timings_json(choice));
    const json::array warnings = warnings_json(choice);
    if (!warnings.empty()) extra_members += ",\"warnings\":" + to_json(warnings);
    event(index,
          fmt::format(R"("delta":{{}},"logprobs":{},"finish_reason":"{}")", logprobs(tokens), finish_reason(choice)),
          extra_members, out);
  }

 private:
  std::string logprobs(std::span<const LogprobToken> tokens) const {
    return metadata_.with_logprobs && !tokens.empty() ? to_json(choice_logprobs(tokens)) : "null";
  }

  // The first event of a choice has the role.
  void open_choice(int choice, std::string& out) {
    if (opened_.size() <= static_cast<size_t>(choice)) opened_.resize(static_cast<size_t>(choice) + 1);
    if (opened_[static_cast<size_t>(choice)]) return;
    opened_[static_cast<size_t>(choice)] = true;
    event(choice, R"("delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null)", "", out);
  }

  void chunk(int choice, std::string_view delta, std::span<const LogprobToken> tokens, std::string& out) {
    open_choice(choice, out);
    const bool is_counted = static_cast<size_t>(choice) < n_tokens_.size();
    event(choice, fmt::format(R"("delta":{{{}}},"logprobs":{},"finish_reason":null)", delta, logprobs(tokens)),
          is_counted ? fmt::format(R"(,"completion_tokens":{})", n_tokens_[static_cast<size_t>(choice)]) : "", out);
  }

  std::vector<bool> opened_;
  std::vector<int> n_tokens_;   // per choice, if progress was requested
  std::map<int, int> n_calls_;  // per choice: calls sent so far, without malformed ones
};

json::object message_object(const Choice& choice) {
  json::object out{{"role", "assistant"}};
  const Message& message = choice.message;
  const bool has_no_content = message.content.empty() && choice.calls_tools();
  out["content"] = has_no_content ? json::value(nullptr) : json::value(message.content);
  out["refusal"] = nullptr;
  if (!message.reasoning_content.empty()) out["reasoning_content"] = message.reasoning_content;
  json::array calls;
  for (const ToolCall& call : message.tool_calls) {
    calls.push_back(
        {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  return out;
}

json::object make_response(const ResponseMetadata& metadata, std::span<const Choice> choices, const UsageTotal& usage) {
  json::array list, warnings;
  for (const Choice& choice : choices) {
    json::object entry{{"index", list.size()}};
    entry["message"] = message_object(choice);
    entry["logprobs"] = metadata.with_logprobs ? json::value(choice_logprobs(choice.tokens)) : json::value(nullptr);
    entry["finish_reason"] = finish_reason(choice);
    list.push_back(std::move(entry));
    for (json::value& warning : warnings_json(choice)) warnings.push_back(std::move(warning));
  }
  json::object out = completion_object(kName, metadata, std::move(list), usage, choices.front());
  if (!warnings.empty()) out["warnings"] = std::move(warnings);
  return out;
}

}  // namespace

const ApiDialect& chat_dialect() {
  static const ApiDialect dialect = {
      .fields = {kFields, kGrammarFields, kExtensionFields, kSamplingFields, kThinkingFields, kIgnored},
      .unsupported = kUnsupported,
      .read = read,
      .echo = [](const ChatRequest&, const json::object&) { return json::object(); },
      .make_stream = [](ResponseMetadata metadata) -> std::unique_ptr<StreamWriter> {
        return std::make_unique<ChatStream>(std::move(metadata));
      },
      .make_response = make_response};
  return dialect;
}

}  // namespace zinc
