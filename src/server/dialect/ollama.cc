// POST /api/chat and /api/generate (Ollama): one JSON object per line while streaming, durations in nanoseconds.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>

#include "server/api_dialect.h"
#include "server/ollama_fields.h"
#include "server/request_fields.h"

namespace zinc {
namespace {

constexpr FieldDoc kChatFields[] = {
    {"messages", "array",
     "System, user, assistant and tool messages; assistant messages may have thinking and tool_calls. Empty: the model "
     "is only loaded."},
    {"tools", "array", "Functions the model may call."},
};
constexpr FieldDoc kGenerateFields[] = {
    {"prompt", "string", "The user's message. Empty: the model is only loaded."},
    {"system", "string", "The system message."},
    {"raw", "boolean", "Completes the prompt as it is, without the chat template. Default false."},
    {"suffix", "string", "Text after the insertion: fill-in-the-middle, for models with tokens for it."},
};
constexpr FieldDoc kCommonFields[] = {
    {"model", "string", "The model, with or without the tag :latest. Optional if the server has exactly one."},
    {"name", "string", "Older name of model."},
    {"stream", "boolean", "One JSON object per line as the text is generated. Default true."},
    {"format", "", "json: any JSON object; or a JSON schema."},
    {"options", "object",
     "temperature, top_k, top_p, min_p, seed, stop, num_predict (-1: no limit), repeat_penalty, repeat_last_n, "
     "presence_penalty, frequency_penalty. Others have no effect and are named in the response header "
     "x-zinc-ignored-fields: the context length is an option of the server."},
    {"think", "", "true, false or an effort: low, medium, high. Default: the template's."},
    {"keep_alive", "",
     "Seconds, or a duration such as 5m: the model is unloaded after this idle time; 0: at once; negative: never. "
     "Only if requests may load models (--swap). Default: it stays loaded."},
    {"logprobs", "boolean", "Returns log-probabilities. Default false."},
    {"top_logprobs", "integer", "Alternatives per token, 0 to 20. Default 0."},
    {"truncate", "boolean", "No effect: a prompt that does not fit is an error."},
    {"shift", "boolean", "No effect: the output ends when the context is full."},
};
constexpr UnsupportedField kUnsupported[] = {
    {"images", "this server supports text only"},
    {"template", "the model's own chat template is used; zinc serve --chat-template FILE replaces it"},
    {"context", "send the conversation to /api/chat"},
};

void read_format(const FieldReader& fields, ChatRequest& out) {
  const json::value* format = fields.value("format");
  if (!format || (format->is_string() && format->get_string().empty())) return;
  ResponseFormat& wanted = out.response_format;
  wanted.field = "format";
  if (format->is_object()) {
    wanted.kind = ResponseFormat::Kind::json_schema;
    wanted.schema = *format;
  } else if (format->is_string() && format->get_string() == "json") {
    wanted.kind = ResponseFormat::Kind::json_object;
  } else {
    fields.errors().add("format", "'format' must be \"json\" or a JSON schema");
  }
}

void read_common(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out) {
  out.model = read_ollama_model(fields);
  out.stream = fields.boolean("stream").value_or(true);
  read_format(fields, out);
  read_ollama_options(fields, limits, out);
  read_think(fields, out);
  out.keep_alive = read_keep_alive(fields);
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, limits.top_logprobs);
  if (logprobs) out.options.n_top_logprobs = static_cast<int>(top.value_or(0));
}

json::object read_ollama_message(const FieldReader& fields) {
  fields.check_unsupported(kUnsupported);
  json::object out{{"role", fields.required_text("role")}, {"content", fields.text("content").value_or("")}};
  if (const auto thinking = fields.text("thinking")) out["reasoning_content"] = *thinking;
  if (const auto name = fields.text("tool_name")) out["name"] = *name;
  if (const auto id = fields.text("tool_call_id")) out["tool_call_id"] = *id;
  const json::array* calls = fields.array("tool_calls");
  json::array entries;
  if (calls) {
    for_each_object(*calls, fields.name_of("tool_calls"), fields.errors(), [&](const FieldReader& call) {
      const json::object* function = call.object("function");
      const std::string at = call.name_of("function");
      if (!function) return fields.errors().add(at, "'{}' is missing", at);
      const FieldReader inside(*function, at + ".", fields.errors());
      const json::value* arguments = inside.value("arguments");
      entries.push_back(tool_call_entry(call.text("id").value_or(""), inside.required_text("name"),
                                        arguments ? *arguments : json::value(json::object())));
    });
  }
  if (!entries.empty()) out["tool_calls"] = std::move(entries);
  return out;
}

void read_chat(const json::object& body, const ServerLimits& limits, RequestErrors& errors, ChatRequest& out) {
  const FieldReader fields(body, "", errors);
  fields.check_known({kCommonFields, kChatFields}, kUnsupported);
  read_common(fields, limits, out);
  const json::array* messages = fields.array("messages");
  if (!messages || messages->empty()) return errors.add("messages", "'messages' is missing");
  for_each_object(*messages, "messages", errors,
                  [&](const FieldReader& message) { out.messages.push_back(read_ollama_message(message)); });
  read_tools(fields, out);
}

void read_generate(const json::object& body, const ServerLimits& limits, RequestErrors& errors, ChatRequest& out) {
  const FieldReader fields(body, "", errors);
  fields.check_known({kCommonFields, kGenerateFields}, kUnsupported);
  read_common(fields, limits, out);
  const std::string prompt = fields.text("prompt").value_or(""), system = fields.text("system").value_or("");
  const std::string suffix = fields.text("suffix").value_or("");
  if (!suffix.empty()) out.suffix = suffix;
  if (fields.boolean("raw").value_or(false) || out.suffix) {
    out.prompts = {RawPrompt(prompt)};
    out.parse_special = !out.suffix;  // the text of a rendered template
    return;
  }
  if (!system.empty()) out.messages.push_back({{"role", "system"}, {"content", system}});
  out.messages.push_back({{"role", "user"}, {"content", prompt}});
}

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

std::string_view done_reason(const Choice& choice) {
  return choice.reason == StopReason::max_tokens || choice.reason == StopReason::context_full ? "length" : "stop";
}

// Name, time and the fields of the last line.
json::object ollama_object(const ResponseMetadata& metadata) {
  return {{"model", metadata.model}, {"created_at", ollama_time(std::chrono::system_clock::now())}};
}

void add_end(const ResponseMetadata& metadata, const Choice& choice, json::object& out) {
  const Timings& timings = choice.timings;
  const double total_s = metadata.load_s + timings.queued_s + timings.prefill_s + timings.decode_s;
  out["done"] = true;
  out["done_reason"] = done_reason(choice);
  out["total_duration"] = nanoseconds(total_s);
  out["load_duration"] = nanoseconds(metadata.load_s);
  out["prompt_eval_count"] = choice.usage.n_prompt;
  out["prompt_eval_duration"] = nanoseconds(timings.prefill_s);
  out["eval_count"] = choice.usage.n_completion;
  out["eval_duration"] = nanoseconds(timings.decode_s);
}

void add_logprobs(std::span<const LogprobToken> tokens, json::object& out) {
  if (!tokens.empty()) out["logprobs"] = logprobs_json(tokens);
}

// Arguments are an object here; OpenAI's are its text.
json::object call_object(const ToolCall& call, size_t index) {
  const Result<json::value> parsed = parse_json(call.arguments);
  json::object function{{"index", index}, {"name", call.name}};
  function["arguments"] = parsed.ok() && parsed.value().is_object() ? parsed.value() : json::value(json::object());
  json::object out{{"id", call.id}};
  out["function"] = std::move(function);
  return out;
}

// The generated text of a line: in `message` for chat, at the top level for generate.
struct LineText {
  std::string_view content, thinking;
  json::array calls = {};
};

using AddText = void (*)(LineText text, json::object& out);

void add_message(LineText text, json::object& out) {
  json::object message{{"role", "assistant"}, {"content", text.content}};
  if (!text.thinking.empty()) message["thinking"] = text.thinking;
  if (!text.calls.empty()) message["tool_calls"] = std::move(text.calls);
  out["message"] = std::move(message);
}

void add_response(LineText text, json::object& out) {
  out["response"] = text.content;
  if (!text.thinking.empty()) out["thinking"] = text.thinking;
}

class OllamaStream final : public StreamWriter {
 public:
  OllamaStream(ResponseMetadata metadata, AddText add_text) : metadata_(std::move(metadata)), add_text_(add_text) {}

  void begin(std::string&) override {}

  void delta(int, const Delta& delta, std::span<const LogprobToken> tokens, std::string& out) override {
    if (const auto* text = std::get_if<ContentDelta>(&delta)) {
      line({.content = text->text, .thinking = {}}, tokens, out);
    } else if (const auto* reasoning = std::get_if<ReasoningDelta>(&delta)) {
      line({.content = {}, .thinking = reasoning->text}, tokens, out);
    } else if (const auto* start = std::get_if<CallStart>(&delta)) {
      call_ = {.name = start->name, .id = start->id, .arguments = {}};
    } else if (const auto* arguments = std::get_if<ArgumentsDelta>(&delta)) {
      call_.arguments += arguments->text;
    } else if (std::holds_alternative<CallEnd>(delta)) {
      line({.content = {}, .thinking = {}, .calls = {call_object(call_, n_calls_++)}}, tokens, out);
    }
  }

  void end_choice(int, const Choice& choice, std::span<const LogprobToken> tokens, std::string& out) override {
    json::object last = ollama_object(metadata_);
    add_text_({}, last);
    add_end(metadata_, choice, last);
    if (metadata_.with_logprobs) add_logprobs(tokens, last);
    out += to_json(last) + "\n";
  }

  void end(const UsageTotal&, std::string&) override {}
  void error(const ApiError& error, std::string& out) override {
    out += to_json(error_body(error, ErrorFormat::ollama)) + "\n";
  }

 private:
  void line(LineText text, std::span<const LogprobToken> tokens, std::string& out) const {
    json::object object = ollama_object(metadata_);
    add_text_(std::move(text), object);
    object["done"] = false;
    if (metadata_.with_logprobs) add_logprobs(tokens, object);
    out += to_json(object) + "\n";
  }

  const ResponseMetadata metadata_;
  const AddText add_text_;
  ToolCall call_;  // being read
  size_t n_calls_ = 0;
};

json::object make_ollama_response(const ResponseMetadata& metadata, std::span<const Choice> choices, AddText add_text) {
  const Choice& choice = choices.front();
  const Message& message = choice.message;
  LineText text{.content = message.content, .thinking = message.reasoning_content};
  for (const ToolCall& call : message.tool_calls) text.calls.push_back(call_object(call, text.calls.size()));
  json::object out = ollama_object(metadata);
  add_text(std::move(text), out);
  add_end(metadata, choice, out);
  if (metadata.with_logprobs) add_logprobs(choice.tokens, out);
  return out;
}

template <AddText kAddText>
ApiDialect make_dialect(std::span<const FieldDoc> fields, decltype(ApiDialect::read) read) {
  return {.error_format = ErrorFormat::ollama,
          .fields = {kCommonFields, fields},
          .unsupported = kUnsupported,
          .stream_type = "application/x-ndjson",
          .read = read,
          .echo = [](const ChatRequest&, const json::object&) { return json::object(); },
          .make_stream = [](ResponseMetadata metadata) -> std::unique_ptr<StreamWriter> {
            return std::make_unique<OllamaStream>(std::move(metadata), kAddText);
          },
          .make_response = [](const ResponseMetadata& metadata, std::span<const Choice> choices,
                              const UsageTotal&) { return make_ollama_response(metadata, choices, kAddText); }};
}

}  // namespace

const ApiDialect& ollama_chat_dialect() {
  static const ApiDialect dialect = make_dialect<add_message>(kChatFields, read_chat);
  return dialect;
}

const ApiDialect& ollama_generate_dialect() {
  static const ApiDialect dialect = make_dialect<add_response>(kGenerateFields, read_generate);
  return dialect;
}

}  // namespace zinc
