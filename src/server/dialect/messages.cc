// POST /v1/messages (Anthropic): content blocks, including thinking and tool use.
#include <fmt/format.h>

#include <array>

#include "server/api_dialect.h"
#include "server/request_fields.h"

namespace zinc {
namespace {

constexpr FieldDoc kFields[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"messages", "array",
     "Required. User, assistant and system messages; blocks: text, tool_use, tool_result, thinking, "
     "redacted_thinking. If the last one is the assistant's, the output continues it."},
    {"system", "", "The system prompt: a string or text blocks."},
    {"max_tokens", "integer", "Required (not for count_tokens). Maximum output tokens; -1: until the context is full."},
    {"stop_sequences", "array",
     "Up to 16 strings of at most 256 bytes; generation stops there. Not part of the output."},
    {"stream", "boolean", "Streams the response as server-sent events. Default false."},
    {"tools", "array",
     "Functions the model may call: name, description, input_schema. Anthropic's own tools are left out."},
    {"tool_choice", "object",
     "{\"type\": \"auto\"} (default), none, any, or tool with a name: a call is then forced, with arguments that "
     "satisfy "
     "input_schema. With disable_parallel_tool_use there is at most one call."},
    {"thinking", "object",
     "{\"type\": \"enabled\", \"budget_tokens\": N}, adaptive or disabled. Default: the template's."},
    {"output_config", "object",
     "effort: low, medium, high, xhigh or max; format: {\"type\": \"json_schema\", \"schema\": ...}."},
    {"metadata", "object", "No effect."},
    {"service_tier", "string", "No effect."},
    {"betas", "array", "No effect."},
    {"context_management", "object", "No effect: no context edit is applied."},
    {"cache_control", "object", "No effect: shared prefixes are found automatically."},
    {"diagnostics", "", "No effect."},
    {"inference_geo", "string", "No effect."},
    {"speed", "string", "No effect."},
    {"user_profile_id", "string", "No effect."},
    {"workspace_id", "string", "No effect."},
};
constexpr UnsupportedField kUnsupported[] = {
    {"mcp_servers", "this server has no built-in tools"},
    {"container", "this server has no built-in tools"},
    {"thread", "nothing is stored; send the whole conversation as 'messages'"},
};

constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

// A known client puts a checksum of its request at the start of its system prompt. It is irrelevant to the model but
// differs in every request, which would defeat the prefix cache: its digits are replaced by zeros.
void normalize_billing_header(std::string& text) {
  if (!text.starts_with(kBillingHeader)) return;
  constexpr std::string_view kKey = "cch=";
  const size_t line_end = std::min(text.find('\n'), text.size());
  const size_t key = text.find(kKey);
  if (key == std::string::npos || key > line_end) return;
  for (size_t i = key + kKey.size(); i < line_end && text[i] != ';'; ++i) text[i] = '0';
}

constexpr std::array<std::string_view, 1> kTextBlocks = {"text"};

void read_system(const FieldReader& fields, ChatRequest& out) {
  const json::value* system = fields.value("system");
  if (!system) return;
  std::string text = content_text(*system, "system", kTextBlocks, fields.errors());
  normalize_billing_header(text);
  if (!text.empty()) out.messages.push_back({{"role", "system"}, {"content", text}});
}

// Converts the blocks of one message to OpenAI messages: tool results first, one message each.
class BlockReader {
 public:
  BlockReader(std::string_view role, RequestErrors& errors) : role_(role), errors_(errors) {}

  void read(const FieldReader& fields) {
    const std::string& path = fields.path();
    const std::string type = fields.required_text("type");
    const bool is_user = role_ == "user";
    if (type == "text") {
      text_ += fields.required_text("text");
    } else if (type == "tool_use" && !is_user) {
      const json::object* input = fields.object("input");
      calls_.push_back(tool_call_entry(fields.required_text("id"), fields.required_text("name"),
                                       input ? json::value(*input) : json::value(json::object())));
    } else if (type == "thinking" && !is_user) {
      reasoning_ += fields.required_text("thinking");
    } else if (type == "redacted_thinking" && !is_user) {
      // Encrypted: nothing for the model.
    } else if (type == "tool_result" && is_user) {
      const json::value* content = fields.value("content");
      const std::string text = content ? content_text(*content, path + "content", kTextBlocks, errors_) : "";
      json::object result{{"role", "tool"}, {"tool_call_id", fields.required_text("tool_use_id")}, {"content", text}};
      if (fields.boolean("is_error").value_or(false)) result["is_error"] = true;  // for templates that use it
      results_.push_back(std::move(result));
    } else if (!errors_.any()) {
      errors_.add(unsupported_field(path + "type",
                                    fmt::format("'{}type' is '{}', which is not supported in a message with role '{}'; "
                                                "supported are text, tool_use, tool_result and "
                                                "thinking",
                                                path, type.substr(0, 40), role_)));
    }
  }

  void take(json::array& messages) {
    const bool only_results = !results_.empty() && text_.empty();
    for (json::value& result : results_) messages.push_back(std::move(result));
    if (only_results) return;
    json::object message{{"role", role_}, {"content", text_}};
    if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
    if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    messages.push_back(std::move(message));
  }

 private:
  std::string_view role_;
  RequestErrors& errors_;
  std::string text_, reasoning_;
  json::array calls_, results_;
};

void read_message(const FieldReader& fields, ChatRequest& out) {
  const std::string& path = fields.path();
  RequestErrors& errors = fields.errors();
  const std::string role = fields.required_text("role");
  if (errors.any()) return;
  if (role != "user" && role != "assistant" && role != "system") {
    return errors.add(path + "role", "'{}role' is '{}'; expected user, assistant or system", path, role.substr(0, 40));
  }
  const json::value* content = fields.value("content");
  if (!content) return errors.add(path + "content", "'{}content' is missing", path);
  if (content->is_string() || role == "system") {
    const std::string text = content_text(*content, path + "content", kTextBlocks, errors);
    out.messages.push_back({{"role", role}, {"content", text}});
    return;
  }
  const json::array* blocks = fields.array("content");
  if (!blocks) return;
  BlockReader reader(role == "user" ? "user" : "assistant", errors);
  for_each_object(*blocks, path + "content", errors, [&](const FieldReader& block) { reader.read(block); });
  reader.take(out.messages);
}

void read_messages_field(const FieldReader& fields, ChatRequest& out) {
  RequestErrors& errors = fields.errors();
  const json::array* messages = fields.array("messages");
  if (!messages || messages->empty()) {
    return errors.add("messages", "'messages' is {}; expected an array with at least one message",
                      messages ? "empty" : "missing");
  }
  for_each_object(*messages, "messages", errors, [&](const FieldReader& message) { read_message(message, out); });
  if (errors.any()) return;
  const json::object& last = out.messages.back().get_object();
  out.continue_final_message = last.at("role").get_string() == "assistant";
  if (out.continue_final_message && last.contains("tool_calls")) {
    errors.add("messages", "the last message is an assistant message with tool calls, which cannot be continued");
  }
}

// The client package continues without threads if the error says that they are not supported.
void reject_thread(const FieldReader& fields) {
  if (!fields.value("thread")) return;
  ApiError error = unsupported_field("thread", "'thread' is not supported: nothing is stored");
  error.details = {{"error_code", "thread_unsupported_request"}, {"unsupported", json::array{"thread"}}};
  fields.errors().add(std::move(error));
}

void read_functions(const FieldReader& fields, ChatRequest& out) {
  read_tool_list(fields, out, [](const FieldReader& tool) {
    if (tool.text("type").value_or("custom") != "custom") return json::object();
    return function_tool(tool, "input_schema");
  });
}

void read_tool_choice_field(const FieldReader& fields, ChatRequest& out) {
  const json::object* choice = fields.object("tool_choice");
  if (!choice) return;
  const FieldReader inside(*choice, "tool_choice.", fields.errors());
  const std::string type = inside.required_text("type");
  out.parallel_tool_calls = !inside.boolean("disable_parallel_tool_use").value_or(false);
  if (type == "none") out.tools = nullptr;
  out.tool_choice.requires_call = type == "any" || type == "tool";
  out.tool_choice.is_named = type == "tool";
  if (out.tool_choice.is_named) out.tool_choice.names = {inside.required_text("name")};
  if (type != "none" && type != "auto" && !out.tool_choice.requires_call) {
    fields.errors().add("tool_choice", "'tool_choice.type' must be 'auto', 'any', 'tool' or 'none'");
  }
}

void read_thinking_fields(const FieldReader& fields, ChatRequest& out) {
  if (const json::object* config = fields.object("output_config")) {
    const FieldReader inside(*config, "output_config.", fields.errors());
    read_response_format(inside, "format", out);
    const std::string effort = inside.text("effort").value_or("");
    if (!effort.empty() && check_effort(inside, "effort", effort)) out.reasoning_effort = effort;
  }
  read_thinking_object(fields, out);
}

void read_conversation(const FieldReader& fields, ChatRequest& out) {
  out.model = fields.text("model").value_or("");
  read_system(fields, out);
  read_messages_field(fields, out);
  read_functions(fields, out);
  read_tool_choice_field(fields, out);
  read_thinking_fields(fields, out);
}

void read(const json::object& body, const ServerLimits& limits, RequestErrors& errors, ChatRequest& out) {
  const FieldReader fields(body, "", errors);
  reject_thread(fields);
  fields.check_known({kFields, kSamplingFields}, kUnsupported);
  read_conversation(fields, out);
  const std::optional<int> max_tokens = read_token_limit(fields, "max_tokens");
  if (!max_tokens) errors.add("max_tokens", "'max_tokens' is missing");
  out.options.max_tokens = max_tokens.value_or(1);
  read_stop(fields, "stop_sequences", limits, out);
  out.stream = fields.boolean("stream").value_or(false);
  read_sampling(fields, out);
}

std::string_view stop_reason(const Choice& choice) {
  if (choice.reason == StopReason::max_tokens || choice.reason == StopReason::context_full) return "max_tokens";
  if (choice.calls_tools()) return "tool_use";
  return choice.reason == StopReason::stop_string ? "stop_sequence" : "end_turn";
}

json::value stop_sequence(const Choice& choice) {
  return choice.reason == StopReason::stop_string ? json::value(choice.stop_string) : json::value(nullptr);
}

json::object usage_object(int n_prompt, int n_cached, int n_completion) {
  return {{"input_tokens", n_prompt - n_cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", n_cached},
          {"output_tokens", n_completion}};
}

json::object message_object(const ResponseMetadata& metadata) {
  return {{"id", "msg_" + metadata.id}, {"type", "message"},
          {"role", "assistant"},        {"model", metadata.model},
          {"content", json::array()},   {"stop_reason", nullptr},
          {"stop_sequence", nullptr},   {"usage", usage_object(metadata.n_prompt_tokens, 0, 0)}};
}

// At most one block is open; a delta of another kind closes it.
class MessageStream final : public StreamWriter {
 public:
  explicit MessageStream(ResponseMetadata metadata) : metadata_(std::move(metadata)) {}

  void begin(std::string& out) override {
    emit("message_start", {{"type", "message_start"}, {"message", message_object(metadata_)}}, out);
  }

  void delta(int, const Delta& delta, std::span<const LogprobToken>, std::string& out) override {
    if (const auto* text = std::get_if<ContentDelta>(&delta)) {
      open(Block::text, {{"type", "text"}, {"text", ""}}, out);
      emit_delta({{"type", "text_delta"}, {"text", text->text}}, out);
    } else if (const auto* reasoning = std::get_if<ReasoningDelta>(&delta)) {
      open(Block::thinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
      emit_delta({{"type", "thinking_delta"}, {"thinking", reasoning->text}}, out);
    } else if (const auto* call = std::get_if<CallStart>(&delta)) {
      close(out);
      open(Block::call, {{"type", "tool_use"}, {"id", call->id}, {"name", call->name}, {"input", json::object()}}, out);
    } else if (const auto* arguments = std::get_if<ArgumentsDelta>(&delta)) {
      emit_delta({{"type", "input_json_delta"}, {"partial_json", arguments->text}}, out);
    } else if (std::holds_alternative<CallEnd>(delta) || std::holds_alternative<CallFailed>(delta)) {
      close(out);
    }
  }

  void end_choice(int, const Choice& choice, std::span<const LogprobToken>, std::string& out) override {
    close(out);
    const Usage& usage = choice.usage;
    json::object end{{"type", "message_delta"},
                     {"delta", {{"stop_reason", stop_reason(choice)}, {"stop_sequence", stop_sequence(choice)}}}};
    end["usage"] = usage_object(usage.n_prompt, usage.n_cached, usage.n_completion);
    emit("message_delta", end, out);
  }

  void end(const UsageTotal&, std::string& out) override { emit("message_stop", {{"type", "message_stop"}}, out); }

  void error(const ApiError& error, std::string& out) override {
    emit("error", error_body(error, ErrorFormat::anthropic), out);
  }

 private:
  enum class Block : uint8_t { none, text, thinking, call };

  static void emit(std::string_view name, const json::object& event, std::string& out) {
    out += sse_event(name, event);
  }
  void open(Block kind, const json::object& block, std::string& out) {
    if (open_ == kind) return;
    close(out);
    open_ = kind;
    json::object event{{"type", "content_block_start"}, {"index", index_}};
    event["content_block"] = block;
    emit("content_block_start", event, out);
  }
  void emit_delta(const json::object& delta, std::string& out) const {
    json::object event{{"type", "content_block_delta"}, {"index", index_}};
    event["delta"] = delta;
    emit("content_block_delta", event, out);
  }
  void close(std::string& out) {
    if (open_ == Block::none) return;
    open_ = Block::none;
    emit("content_block_stop", {{"type", "content_block_stop"}, {"index", index_}}, out);
    ++index_;
  }

  ResponseMetadata metadata_;
  Block open_ = Block::none;
  int index_ = 0;
};

json::object make_response(const ResponseMetadata& metadata, std::span<const Choice> choices, const UsageTotal&) {
  const Choice& choice = choices.front();
  const Message& message = choice.message;
  json::array content;
  if (!message.reasoning_content.empty()) {
    content.push_back({{"type", "thinking"}, {"thinking", message.reasoning_content}, {"signature", ""}});
  }
  if (!message.content.empty()) content.push_back({{"type", "text"}, {"text", message.content}});
  for (const ToolCall& call : message.tool_calls) {
    const Result<json::value> input = parse_json(call.arguments);
    json::object block{{"type", "tool_use"}, {"id", call.id}, {"name", call.name}};
    block["input"] = input.ok() ? input.value() : json::value(json::object());
    content.push_back(std::move(block));
  }
  json::object out = message_object(metadata);
  out["content"] = std::move(content);
  out["stop_reason"] = stop_reason(choice);
  out["stop_sequence"] = stop_sequence(choice);
  out["usage"] = usage_object(choice.usage.n_prompt, choice.usage.n_cached, choice.usage.n_completion);
  if (json::array warnings = warnings_json(choice); !warnings.empty()) out["warnings"] = std::move(warnings);
  return out;
}

}  // namespace

const ApiDialect& messages_dialect() {
  static const ApiDialect dialect = {.error_format = ErrorFormat::anthropic,
                                     .fields = {kFields, kSamplingFields},
                                     .unsupported = kUnsupported,
                                     .read = read,
                                     .echo = [](const ChatRequest&, const json::object&) { return json::object(); },
                                     .make_stream = [](ResponseMetadata metadata) -> std::unique_ptr<StreamWriter> {
                                       return std::make_unique<MessageStream>(std::move(metadata));
                                     },
                                     .make_response = make_response};
  return dialect;
}

void read_countable(const json::object& body, RequestErrors& errors, ChatRequest& out) {
  const FieldReader fields(body, "", errors);
  reject_thread(fields);
  fields.check_known({kFields, kSamplingFields}, kUnsupported);
  read_conversation(fields, out);
}

}  // namespace zinc
