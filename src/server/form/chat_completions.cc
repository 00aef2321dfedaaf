// POST /v1/chat/completions, as OpenAI has it.
#include <fmt/format.h>

#include <map>

#include "server/api_form.h"
#include "server/request_fields.h"

namespace zinc {
namespace {

constexpr FieldDoc kFields[] = {
    {"model", "string", "Which model. May be left out where the server has one only."},
    {"messages", "array", "The conversation: system, developer, user, assistant and tool messages; text only."},
    {"tools", "array", "Functions the model may call."},
    {"tool_choice", "", "auto (default) or none."},
    {"parallel_tool_calls", "boolean", "false: the answer ends after its first call. Default true."},
    {"stream_tool_arguments", "boolean",
     "true: a call's arguments stream before they are known to be whole. Default false."},
    {"response_format", "object",
     "The answer's form: {\"type\": \"text\"}, json_object, or json_schema with a schema."},
    {"stream", "boolean", "Answer as server-sent events. Default false."},
    {"stream_options", "object", "include_usage: a last event with token counts. Default false."},
    {"return_progress", "boolean",
     "Events of a stream say how far the prompt has been read, then how many tokens were made. Default false."},
    {"continue_final_message", "boolean",
     "The last message, the assistant's, is the beginning of the answer, which goes on from there. Default false."},
    {"max_tokens", "integer", "Most tokens of the answer. Default: until the context is full."},
    {"max_completion_tokens", "integer", "Another name of max_tokens."},
    {"n", "integer", "Answers to make. Default 1."},
    {"stop", "", "A text or several at which the answer ends; they are not part of it."},
    {"logprobs", "boolean", "Log-probabilities of all tokens made. Default false."},
    {"top_logprobs", "integer", "Alternatives per token, 0 to 20. Needs logprobs."},
};
// Taken and of no effect: they concern the provider's books, not the answer.
constexpr FieldDoc kIgnored[] = {
    {"user", "string", "No effect."},
    {"metadata", "object", "No effect."},
    {"store", "boolean", "No effect: nothing is stored."},
    {"service_tier", "string", "No effect."},
    {"prompt_cache_key", "string", "No effect: equal beginnings are found by themselves."},
    {"prompt_cache_retention", "string", "No effect."},
    {"prompt_cache_options", "object", "No effect."},
    {"safety_identifier", "string", "No effect."},
};
constexpr RefusedField kRefused[] = {
    {"functions", "use 'tools'"},
    {"function_call", "use 'tool_choice'"},
    {"audio", "this server takes and makes text only"},
    {"prediction", "there is no predicted output"},
    {"web_search_options", "this server has no tools of its own"},
    {"verbosity", "models have no such control"},
    {"moderation", "nothing is moderated here"},
    {"guided_json", "response_format has it"},
};

void read_stream_options(const FieldReader& fields, ChatRequest& out) {
  const json::object* options = fields.object("stream_options");
  if (!options) return;
  const FieldReader inside(*options, "stream_options.", fields.errors());
  out.include_usage = inside.boolean("include_usage").value_or(false);
}

// The last message has to be a beginning that can be gone on with.
void read_continuation(const FieldReader& fields, ChatRequest& out) {
  out.continues_last = fields.boolean("continue_final_message").value_or(false);
  if (!out.continues_last || out.messages.empty()) return;
  const json::object& last = out.messages.back().get_object();
  if (last.at("role").get_string() == "assistant" && !last.contains("tool_calls")) return;
  fields.errors().add("continue_final_message",
                      "'continue_final_message' needs a last message of the assistant, without tool calls");
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
  fields.refuse_unknown({kFields, kIgnored, kModalities, kFormFields, kSamplingFields, kThinkingFields}, kRefused);
  out.model = fields.text("model").value_or("");
  read_messages(fields, out);
  read_continuation(fields, out);
  read_tools(fields, out);
  read_tool_choice(fields, out);
  read_modalities(fields);
  out.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  out.streams_arguments = fields.boolean("stream_tool_arguments").value_or(false);
  read_response_format(fields, "response_format", out);
  read_form(fields, out);
  out.stream = fields.boolean("stream").value_or(false);
  read_stream_options(fields, out);
  out.include_progress = fields.boolean("return_progress").value_or(false);
  const std::optional<int> max_tokens = read_token_limit(fields, "max_tokens");
  const std::optional<int> max_completion = read_token_limit(fields, "max_completion_tokens");
  if (max_tokens && max_completion && *max_tokens != *max_completion) {
    errors.add("max_tokens", "'max_tokens' and 'max_completion_tokens' differ; give one of them");
  }
  out.max_tokens = max_completion.value_or(max_tokens.value_or(0));
  read_n(fields, limits, out);
  read_stop(fields, "stop", limits, out);
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, limits.top_logprobs);
  if (top && !logprobs) errors.add("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  if (logprobs) out.n_top_logprobs = static_cast<int>(top.value_or(0));
  read_sampling(fields, out);
  read_thinking(fields, limits, out);
}

json::object token_json(const ShownToken& token) {
  json::array bytes;
  for (const char c : token.text) bytes.push_back(static_cast<unsigned char>(c));
  json::object out{{"token", token.text}, {"logprob", token.logprob}};
  out["bytes"] = std::move(bytes);
  return out;
}

json::object logprobs_json(std::span<const ShownToken> tokens) {
  json::array content;
  for (const ShownToken& token : tokens) {
    json::object entry = token_json(token);
    json::array top;
    for (const ShownToken& other : token.top) top.push_back(token_json(other));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  json::object out;
  out["content"] = std::move(content);
  out["refusal"] = nullptr;
  return out;
}

constexpr CompletionName kName = {"chatcmpl-", "chat.completion", "chat.completion.chunk"};

class ChatStream final : public CompletionEvents {
 public:
  explicit ChatStream(AnswerHead head) : CompletionEvents(kName, std::move(head)) {}

  void progress(int choice, const PromptProgress& progress, std::string& out) override {
    open_choice(choice, out);
    event(choice, R"("delta":{},"logprobs":null,"finish_reason":null)",
          fmt::format(R"(,"prompt_progress":{{"total":{},"cache":{},"processed":{}}})", progress.n_total,
                      progress.n_cached, progress.n_done),
          out);
  }

  void counted(int choice, int n_tokens) override {
    if (n_tokens_.size() <= static_cast<size_t>(choice)) n_tokens_.resize(static_cast<size_t>(choice) + 1);
    n_tokens_[static_cast<size_t>(choice)] = n_tokens;
  }

  void delta(int choice, const Delta& delta, std::span<const ShownToken> tokens, std::string& out) override {
    if (const auto* text = std::get_if<ContentDelta>(&delta)) {
      chunk(choice, fmt::format(R"("content":{})", json_text(text->text)), tokens, out);
    } else if (const auto* thought = std::get_if<ReasoningDelta>(&delta)) {
      chunk(choice, fmt::format(R"("reasoning_content":{})", json_text(thought->text)), tokens, out);
    } else if (const auto* call = std::get_if<CallStart>(&delta)) {
      chunk(choice,
            fmt::format(
                R"("tool_calls":[{{"index":{},"id":{},"type":"function","function":{{"name":{},"arguments":""}}}}])",
                n_calls_[choice]++, json_text(call->id), json_text(call->name)),
            tokens, out);
    } else if (const auto* arguments = std::get_if<ArgumentsDelta>(&delta)) {
      chunk(choice,
            fmt::format(R"("tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}])", n_calls_[choice] - 1,
                        json_text(arguments->text)),
            tokens, out);
    }
  }

  void end_choice(int index, const Choice& choice, std::span<const ShownToken> tokens, std::string& out) override {
    open_choice(index, out);
    std::string beside = ",\"timings\":" + to_json(timings_json(choice));
    if (!choice.message.warnings.empty()) beside += ",\"warnings\":" + to_json(warnings_json(choice.message));
    event(index,
          fmt::format(R"("delta":{{}},"logprobs":{},"finish_reason":"{}")", logprobs(tokens), finish_reason(choice)),
          beside, out);
  }

 private:
  std::string logprobs(std::span<const ShownToken> tokens) const {
    return head_.with_logprobs && !tokens.empty() ? to_json(logprobs_json(tokens)) : "null";
  }

  // The first event of a choice says whose turn it is.
  void open_choice(int choice, std::string& out) {
    if (opened_.size() <= static_cast<size_t>(choice)) opened_.resize(static_cast<size_t>(choice) + 1);
    if (opened_[static_cast<size_t>(choice)]) return;
    opened_[static_cast<size_t>(choice)] = true;
    event(choice, R"("delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null)", "", out);
  }

  void chunk(int choice, std::string_view delta, std::span<const ShownToken> tokens, std::string& out) {
    open_choice(choice, out);
    const bool is_counted = static_cast<size_t>(choice) < n_tokens_.size();
    event(choice, fmt::format(R"("delta":{{{}}},"logprobs":{},"finish_reason":null)", delta, logprobs(tokens)),
          is_counted ? fmt::format(R"(,"completion_tokens":{})", n_tokens_[static_cast<size_t>(choice)]) : "", out);
  }

  std::vector<bool> opened_;
  std::vector<int> n_tokens_;   // of each choice, where it is asked for
  std::map<int, int> n_calls_;  // of each choice: those told of, which malformed ones are not
};

json::object message_object(const Choice& choice) {
  json::object out{{"role", "assistant"}};
  const Message& message = choice.message;
  const bool is_silent = message.content.empty() && choice.calls_tools();
  out["content"] = is_silent ? json::value(nullptr) : json::value(message.content);
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

json::object whole(const AnswerHead& head, std::span<const Choice> choices, const UsageTotal& usage) {
  json::array list, warnings;
  for (const Choice& choice : choices) {
    json::object entry{{"index", list.size()}};
    entry["message"] = message_object(choice);
    entry["logprobs"] = head.with_logprobs ? json::value(logprobs_json(choice.tokens)) : json::value(nullptr);
    entry["finish_reason"] = finish_reason(choice);
    list.push_back(std::move(entry));
    for (json::value& warning : warnings_json(choice.message)) warnings.push_back(std::move(warning));
  }
  json::object out = completion_object(kName, head, std::move(list), usage, choices.front());
  if (!warnings.empty()) out["warnings"] = std::move(warnings);
  return out;
}

}  // namespace

const ApiForm& chat_form() {
  static const ApiForm form = {.fields = {kFields, kFormFields, kSamplingFields, kThinkingFields, kIgnored},
                               .read = read,
                               .echo = [](const ChatRequest&, const json::object&) { return json::object(); },
                               .make_stream = [](AnswerHead head) -> std::unique_ptr<StreamWriter> {
                                 return std::make_unique<ChatStream>(std::move(head));
                               },
                               .whole = whole};
  return form;
}

}  // namespace zinc
