// POST /v1/responses (OpenAI). References to kept responses are resolved before (server/response_routes.h): a request
// contains its whole conversation here.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/api_dialect.h"
#include "server/request_fields.h"
#include "server/sealed_text.h"

namespace zinc {
namespace {

constexpr FieldDoc kFields[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"input", "",
     "Required. A string, or items of type message, function_call, function_call_output, reasoning or item_reference."},
    {"previous_response_id", "string", "A kept response whose conversation this one continues."},
    {"instructions", "string", "The system prompt."},
    {"tools", "array",
     "Functions the model may call. A namespace is expanded: its functions are named NAMESPACE__NAME in the prompt. "
     "Tools of other types are left out."},
    {"tool_choice", "",
     "auto (default), none, required, {\"type\": \"function\", ...} or allowed_tools. A forced call has arguments that "
     "satisfy their schema."},
    {"parallel_tool_calls", "boolean", "false: at most one tool call. Default true."},
    {"max_output_tokens", "integer",
     "Maximum output tokens, reasoning included. Default, and -1: until the context is full."},
    {"top_logprobs", "integer", "Returns log-probabilities with so many alternatives per token, 0 to 20."},
    {"text", "object",
     "format: structured output, {\"type\": \"text\"} (default), json_object, or json_schema with schema."},
    {"stream", "boolean", "Streams the response as server-sent events. Default false."},
    {"truncation", "string",
     "auto: leaves out the oldest turns of a conversation that exceeds the context. Default disabled: an error."},
    {"store", "boolean", "false: the response is not kept. Default true."},
    {"include", "array",
     "reasoning.encrypted_content: reasoning items can be sent back without a kept response; "
     "message.output_text.logprobs: as top_logprobs 0. Others have no effect."},
    {"metadata", "object", "Repeated in the response: at most 16 strings of 512 characters, with names of 64."},
    {"user", "string", "No effect."},
    {"service_tier", "string", "No effect."},
    {"safety_identifier", "string", "No effect."},
    {"prompt_cache_key", "string", "No effect: shared prefixes are found automatically."},
    {"prompt_cache_retention", "string", "No effect."},
    {"prompt_cache_options", "object", "No effect."},
    {"stream_options", "object", "No effect."},
    {"client_metadata", "object", "No effect."},
    {"max_tool_calls", "integer", "No effect: this server has no built-in tools."},
    {"moderation", "object", "No effect."},
    {"context_management", "array", "No effect: no context edit is applied."},
};
constexpr UnsupportedField kUnsupported[] = {
    {"conversation", "use 'previous_response_id', or send the whole conversation as 'input'"},
    {"prompt", "stored prompts are not supported"},
    {"image", "this server supports text only"},
    {"access_programs", "this server has no built-in tools"},
};

constexpr std::string_view kNamespaceSeparator = "__";

std::string name_in_namespace(std::string_view space, std::string_view name) {
  return space.empty() ? std::string(name) : fmt::format("{}{}{}", space, kNamespaceSeparator, name);
}

constexpr std::array<std::string_view, 3> kTextParts = {"input_text", "output_text", "text"};
constexpr std::array<std::string_view, 2> kReasoningParts = {"reasoning_text", "text"};

// Converts items to messages: tool calls and reasoning are attached to the adjacent assistant message.
class ItemReader {
 public:
  ItemReader(ChatRequest& out, RequestErrors& errors) : out_(out), errors_(errors) {}

  void read(const FieldReader& fields) {
    const std::string& path = fields.path();
    const std::string type = fields.text("type").value_or("message");
    if (type == "message") return message(fields, path);
    if (type == "function_call") {
      const json::value* arguments = fields.value("arguments");
      const std::string name = name_in_namespace(fields.text("namespace").value_or(""), fields.required_text("name"));
      return call(
          tool_call_entry(fields.required_text("call_id"), name, arguments ? *arguments : json::value(json::object())));
    }
    if (type == "function_call_output") {
      const json::value* output = fields.value("output");
      const std::string text = output ? content_text(*output, path + "output", kTextParts, errors_) : "";
      return add({{"role", "tool"}, {"tool_call_id", fields.required_text("call_id")}, {"content", text}});
    }
    if (type == "reasoning") return reasoning(fields, path);
    errors_.add(unsupported_field(path + "type", fmt::format("'{}type' is '{}'; supported are message, "
                                                             "function_call, function_call_output and reasoning",
                                                             path, type.substr(0, 40))));
  }

 private:
  void message(const FieldReader& fields, const std::string& path) {
    const std::string role = fields.required_text("role");
    const json::value* content = fields.value("content");
    if (errors_.any()) return;
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      return errors_.add(path + "role", "'{}role' is '{}'; expected user, assistant, system or developer", path,
                         role.substr(0, 40));
    }
    if (!content) return errors_.add(path + "content", "'{}content' is missing", path);
    add({{"role", role}, {"content", content_text(*content, path + "content", kTextParts, errors_)}});
  }

  void reasoning(const FieldReader& fields, const std::string& path) {
    const json::array* content = fields.array("content");
    if (content && !content->empty()) {
      reasoning_ += content_text(*content, path + "content", kReasoningParts, errors_);
    } else if (const auto sealed = fields.text("encrypted_content")) {
      reasoning_ += unseal_text(*sealed).value_or("");  // another server's cannot be read
    }
  }

  // Reasoning belongs to the next assistant message, or is dropped.
  void add(json::object message) {
    const std::string reasoning = std::exchange(reasoning_, {});
    if (!reasoning.empty() && message["role"].get_string() == "assistant") message["reasoning_content"] = reasoning;
    out_.messages.push_back(std::move(message));
  }

  void call(json::object entry) {
    const bool has_turn =
        !out_.messages.empty() && out_.messages.back().at("role").get_string() == "assistant" && reasoning_.empty();
    if (!has_turn) add({{"role", "assistant"}, {"content", ""}});
    json::object& turn = out_.messages.back().get_object();
    if (!turn.contains("tool_calls")) turn["tool_calls"] = json::array();
    turn["tool_calls"].get_array().push_back(std::move(entry));
  }

  ChatRequest& out_;
  RequestErrors& errors_;
  std::string reasoning_;
};

void read_input(const FieldReader& fields, ChatRequest& out) {
  RequestErrors& errors = fields.errors();
  if (const auto instructions = fields.text("instructions")) {
    out.messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  const json::value* input = fields.value("input");
  if (!input) return errors.add("input", "'input' is missing; expected a string or an array of items");
  if (input->is_string()) {
    out.messages.push_back({{"role", "user"}, {"content", text_of(input->get_string())}});
    return;
  }
  const json::array* items = fields.array("input");
  if (!items || items->empty()) return errors.add("input", "'input' is empty; expected a string or an array of items");
  ItemReader reader(out, errors);
  for_each_object(*items, "input", errors, [&](const FieldReader& item) { reader.read(item); });
}

// The functions of a namespace become tools of their own.
void expand_namespace(const FieldReader& space, json::array& out) {
  const std::string space_name = space.required_text("name");
  const json::array* tools = space.array("tools");
  if (!tools) return;
  size_t i = 0;
  for_each_object(*tools, space.name_of("tools"), space.errors(), [&](const FieldReader& tool) {
    json::object expanded = (*tools)[i++].get_object();
    expanded["name"] = name_in_namespace(space_name, tool.required_text("name"));
    out.push_back(std::move(expanded));
  });
}

void read_functions(const FieldReader& fields, ChatRequest& out) {
  const json::array* tools = fields.array("tools");
  if (!tools) return;
  json::object flat;
  json::array& all = flat["tools"].emplace_array();
  size_t i = 0;
  for_each_object(*tools, "tools", fields.errors(), [&](const FieldReader& tool) {
    const json::value& as_sent = (*tools)[i++];
    if (tool.text("type") == "namespace") return expand_namespace(tool, all);
    all.push_back(as_sent);
  });
  read_tool_list(FieldReader(flat, "", fields.errors()), out, [](const FieldReader& tool) {
    if (tool.required_text("type") != "function") return json::object();
    return function_tool(tool, "parameters");
  });
}

void read_includes(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out) {
  for (const std::string& name : fields.texts("include")) {
    if (name == "reasoning.encrypted_content") out.seal_reasoning = true;
    if (name == "message.output_text.logprobs") out.options.n_top_logprobs = 0;
  }
  if (const auto top = fields.integer("top_logprobs", 0, limits.top_logprobs)) {
    out.options.n_top_logprobs = static_cast<int>(*top);
  }
}

// Kept in memory during generation and echoed, so OpenAI's limits apply.
void check_metadata(const FieldReader& fields) {
  constexpr size_t kMaxPairs = 16;
  constexpr ptrdiff_t kMaxNameLength = 64, kMaxValueLength = 512;
  const json::object* metadata = fields.object("metadata");
  if (!metadata) return;
  const auto n_characters = [](std::string_view text) {
    return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
  };
  const auto is_valid = [&](const json::key_value_pair& pair) {
    return pair.value().is_string() && n_characters(pair.key()) <= kMaxNameLength &&
           n_characters(pair.value().get_string()) <= kMaxValueLength;
  };
  if (metadata->size() <= kMaxPairs && std::ranges::all_of(*metadata, is_valid)) return;
  fields.errors().add(
      "metadata",
      "'metadata' is too large or not strings; expected at most {} strings of at most {} characters, with names "
      "of at most {}",
      kMaxPairs, kMaxValueLength, kMaxNameLength);
}

void read(const json::object& body, const ServerLimits& limits, RequestErrors& errors, ChatRequest& out) {
  const FieldReader fields(body, "", errors);
  static constexpr FieldDoc kBackground[] = {{"background", "boolean", "Must be false."}};
  fields.check_known({kFields, kBackground, kSamplingFields, kThinkingFields}, kUnsupported);
  out.model = fields.text("model").value_or("");
  read_input(fields, out);
  read_functions(fields, out);
  read_tool_choice(fields, out);
  out.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  out.options.max_tokens = read_token_limit(fields, "max_output_tokens").value_or(0);
  out.stream = fields.boolean("stream").value_or(false);
  if (fields.boolean("background").value_or(false)) {
    errors.add(unsupported_field("background", "'background' is not supported: nothing is stored"));
  }
  const std::string truncation = fields.text("truncation").value_or("disabled");
  out.drop_oldest_messages = truncation == "auto";
  if (truncation != "auto" && truncation != "disabled") {
    errors.add("truncation", "'truncation' is '{}'; expected auto or disabled", truncation.substr(0, 40));
  }
  read_includes(fields, limits, out);
  check_metadata(fields);
  if (const json::object* text = fields.object("text")) {
    read_response_format(FieldReader(*text, "text.", errors), "format", out);
  }
  read_sampling(fields, out);
  read_thinking(fields, limits, out);
}

json::value member_of(const json::value* object, std::string_view name) {
  const json::value* found = object && object->is_object() ? object->get_object().if_contains(name) : nullptr;
  return found ? *found : json::value();
}

json::array echoed_tools(const ChatRequest& request, const json::object& body) {
  json::array out;
  if (request.tools.is_null()) return out;
  for (const json::value& tool : body.at("tools").get_array()) {
    json::object entry;
    for (const std::string_view name : {"type", "name", "description", "parameters", "strict"}) {
      if (json::value member = member_of(&tool, name); !member.is_null()) entry[name] = std::move(member);
    }
    out.push_back(std::move(entry));
  }
  return out;
}

// The request fields that the response echoes, as client packages expect: only small ones, since they are kept in
// memory during generation.
json::object echo(const ChatRequest& request, const json::object& body) {
  const auto field = [&](std::string_view name, json::value otherwise) {
    const json::value* found = body.if_contains(name);
    return found && !found->is_null() ? *found : std::move(otherwise);
  };
  const json::value format = member_of(body.if_contains("text"), "format");
  json::object out;
  out["instructions"] = field("instructions", nullptr);
  out["max_output_tokens"] = field("max_output_tokens", nullptr);
  out["metadata"] = field("metadata", json::object());
  out["parallel_tool_calls"] = request.parallel_tool_calls;
  out["temperature"] = field("temperature", request.options.sampling.temperature);  // as in the request
  out["top_p"] = field("top_p", request.options.sampling.top_p);
  out["tool_choice"] = field("tool_choice", "auto");
  out["tools"] = echoed_tools(request, body);
  out["reasoning"] = {{"effort", member_of(body.if_contains("reasoning"), "effort")}, {"summary", nullptr}};
  out["text"] = {{"format", {{"type", format.is_object() ? format.at("type") : json::value("text")}}}};
  out["truncation"] = field("truncation", "disabled");
  out["previous_response_id"] = field("previous_response_id", nullptr);
  out["store"] = field("store", true);
  return out;
}

json::object response_object(const ResponseMetadata& metadata, std::string_view status) {
  json::object out{{"id", "resp_" + metadata.id},
                   {"object", "response"},
                   {"created_at", metadata.created_s},
                   {"status", status},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"model", metadata.model},
                   {"output", json::array()},
                   {"usage", nullptr}};
  for (const auto& member : metadata.echoed) out[member.key()] = member.value();
  return out;
}

json::object responses_usage(const UsageTotal& usage) {
  return {{"input_tokens", usage.n_prompt},
          {"input_tokens_details", {{"cached_tokens", usage.n_cached}}},
          {"output_tokens", usage.n_completion},
          {"output_tokens_details", {{"reasoning_tokens", usage.n_reasoning}}},
          {"total_tokens", usage.n_prompt + usage.n_completion}};
}

bool is_truncated(const Choice& choice) { return finish_reason(choice) == "length"; }

json::object text_part(std::string_view text, json::array logprobs = {}) {
  json::object out{{"type", "output_text"}, {"text", text}, {"annotations", json::array()}};
  out["logprobs"] = std::move(logprobs);
  return out;
}

// The tokens of the content: not those of reasoning and tool calls around it.
std::span<const LogprobToken> content_tokens(std::span<const LogprobToken> tokens, std::string_view content) {
  std::string all;
  for (const LogprobToken& token : tokens) all += token.text;
  const size_t begin = all.rfind(content);
  if (content.empty() || begin == std::string::npos) return {};
  const size_t end = begin + content.size();
  size_t at = 0, first = 0, n = 0;
  for (const LogprobToken& token : tokens) {
    if (at + token.text.size() <= begin) ++first;
    if (at + token.text.size() > begin && at < end) ++n;
    at += token.text.size();
  }
  return tokens.subspan(first, n);
}

// Builds the output items, each with its own id.
class Items {
 public:
  explicit Items(const ResponseMetadata& metadata) : id_(metadata.id), seals_reasoning_(metadata.seal_reasoning) {
    const json::value* tools = metadata.echoed.if_contains("tools");
    if (!tools) return;
    for (const json::value& tool : tools->get_array()) {
      if (member_of(&tool, "type") == "namespace")
        namespaces_.push_back(text_of(member_of(&tool, "name").get_string()));
    }
  }

  json::object reasoning(int index, std::string_view text, std::string_view status) const {
    json::object out{{"id", name("rs", index)}, {"type", "reasoning"}, {"summary", json::array()}, {"status", status}};
    out["content"] = text.empty() ? json::array() : json::array{{{"type", "reasoning_text"}, {"text", text}}};
    if (seals_reasoning_ && status == "completed") out["encrypted_content"] = seal_text(text);
    return out;
  }
  json::object message(int index, std::string_view text, std::string_view status, json::array logprobs = {}) const {
    json::object out{{"id", name("msg", index)}, {"type", "message"}, {"role", "assistant"}, {"status", status}};
    json::array content;
    if (status != "in_progress") content.push_back(text_part(text, std::move(logprobs)));
    out["content"] = std::move(content);
    return out;
  }
  json::object call(int index, const ToolCall& call, std::string_view status) const {
    json::object out{{"id", name("fc", index)}, {"type", "function_call"},     {"call_id", call.id},
                     {"name", call.name},       {"arguments", call.arguments}, {"status", status}};
    for (const std::string& space : namespaces_) {
      if (!call.name.starts_with(name_in_namespace(space, ""))) continue;
      out["namespace"] = space;
      out["name"] = call.name.substr(name_in_namespace(space, "").size());
    }
    return out;
  }

 private:
  std::string name(std::string_view prefix, int index) const { return fmt::format("{}_{}_{}", prefix, id_, index); }
  std::string id_;
  bool seals_reasoning_;
  std::vector<std::string> namespaces_;
};

json::object finished(const ResponseMetadata& metadata, const Choice& choice, const UsageTotal& usage,
                      json::array output) {
  json::object out = response_object(metadata, is_truncated(choice) ? "incomplete" : "completed");
  if (is_truncated(choice)) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  out["output"] = std::move(output);
  out["usage"] = responses_usage(usage);
  if (json::array warnings = warnings_json(choice); !warnings.empty()) out["warnings"] = std::move(warnings);
  if (metadata.on_finished) metadata.on_finished(out);
  return out;
}

class ResponseStream final : public StreamWriter {
 public:
  explicit ResponseStream(ResponseMetadata metadata) : metadata_(std::move(metadata)), items_(metadata_) {}

  void begin(std::string& out) override {
    emit("response.created", {{"response", response_object(metadata_, "in_progress")}}, out);
    emit("response.in_progress", {{"response", response_object(metadata_, "in_progress")}}, out);
  }

  void delta(int, const Delta& delta, std::span<const LogprobToken> tokens, std::string& out) override {
    const size_t n_before = out.size();
    write(delta, tokens, out);
    if (out.size() > n_before) keep(tokens);  // else they come again
  }

  void end_choice(int, const Choice& choice, std::span<const LogprobToken> tokens, std::string& out) override {
    keep(tokens);
    close(out);
    choice_ = choice;
  }

  void end(const UsageTotal& usage, std::string& out) override {
    const std::string_view name = is_truncated(choice_) ? "response.incomplete" : "response.completed";
    emit(name, {{"response", finished(metadata_, choice_, usage, std::move(output_))}}, out);
  }

  void error(const ApiError& error, std::string& out) override {
    json::object response = response_object(metadata_, "failed");
    response["error"] = {{"code", "server_error"}, {"message", error.message}};
    emit("response.failed", {{"response", std::move(response)}}, out);
    emit("error", {{"code", error.code}, {"message", error.message}, {"param", nullptr}}, out);
  }

 private:
  enum class Item : uint8_t { none, reasoning, message, call };

  void keep(std::span<const LogprobToken> tokens) { tokens_.insert(tokens_.end(), tokens.begin(), tokens.end()); }

  void write(const Delta& delta, std::span<const LogprobToken> tokens, std::string& out) {
    if (const auto* text = std::get_if<ContentDelta>(&delta)) {
      if (open_ != Item::message) open_message(out);
      text_ += text->text;
      emit("response.output_text.delta", at_part({{"delta", text->text}, {"logprobs", logprobs_json(tokens)}}), out);
    } else if (const auto* reasoning = std::get_if<ReasoningDelta>(&delta)) {
      if (open_ != Item::reasoning) open_item(Item::reasoning, items_.reasoning(index_ + 1, "", "in_progress"), out);
      text_ += reasoning->text;
      emit("response.reasoning_text.delta", at_part({{"delta", reasoning->text}}), out);
    } else if (const auto* start = std::get_if<CallStart>(&delta)) {
      call_ = {.name = start->name, .id = start->id, .arguments = {}};
      open_item(Item::call, items_.call(index_ + 1, call_, "in_progress"), out);
    } else if (const auto* arguments = std::get_if<ArgumentsDelta>(&delta)) {
      call_.arguments += arguments->text;
      emit("response.function_call_arguments.delta", at_item({{"delta", arguments->text}}), out);
    } else if (std::holds_alternative<CallEnd>(delta)) {
      close(out);
    }
  }

  void emit(std::string_view type, json::object event, std::string& out) {
    json::object whole{{"type", type}, {"sequence_number", n_events_++}};
    for (auto& member : event) whole[member.key()] = std::move(member.value());
    out += sse_event(type, whole);
  }
  json::object at_item(json::object event) const {
    event["item_id"] = item_id_;
    event["output_index"] = index_;
    return event;
  }
  json::object at_part(json::object event) const {
    event["content_index"] = 0;
    return at_item(std::move(event));
  }

  void open_item(Item kind, json::object item, std::string& out) {
    close(out);
    open_ = kind;
    ++index_;
    text_.clear();
    item_id_ = text_of(item.at("id").get_string());
    emit("response.output_item.added", {{"output_index", index_}, {"item", std::move(item)}}, out);
  }
  void open_message(std::string& out) {
    open_item(Item::message, items_.message(index_ + 1, "", "in_progress"), out);
    emit("response.content_part.added", at_part({{"part", text_part("")}}), out);
  }

  void close(std::string& out) {
    json::object item;
    if (open_ == Item::none) return;
    if (open_ == Item::message) {
      const json::array logprobs = logprobs_json(content_tokens(tokens_, text_));
      emit("response.output_text.done", at_part({{"text", text_}, {"logprobs", logprobs}}), out);
      emit("response.content_part.done", at_part({{"part", text_part(text_, logprobs)}}), out);
      item = items_.message(index_, text_, "completed", logprobs);
    } else if (open_ == Item::reasoning) {
      emit("response.reasoning_text.done", at_part({{"text", text_}}), out);
      item = items_.reasoning(index_, text_, "completed");
    } else {
      emit("response.function_call_arguments.done", at_item({{"name", call_.name}, {"arguments", call_.arguments}}),
           out);
      item = items_.call(index_, call_, "completed");
    }
    open_ = Item::none;
    output_.push_back(item);
    emit("response.output_item.done", {{"output_index", index_}, {"item", std::move(item)}}, out);
  }

  ResponseMetadata metadata_;
  Items items_;
  Item open_ = Item::none;
  int index_ = -1, n_events_ = 0;
  std::string item_id_, text_;
  ToolCall call_;
  std::vector<LogprobToken> tokens_;  // if log-probabilities were requested
  json::array output_;
  Choice choice_;
};

json::object make_response(const ResponseMetadata& metadata, std::span<const Choice> choices, const UsageTotal& usage) {
  const Choice& choice = choices.front();
  const Items items(metadata);
  json::array output;
  const auto index = [&] { return static_cast<int>(output.size()); };
  const Message& message = choice.message;
  if (!message.reasoning_content.empty()) {
    output.push_back(items.reasoning(index(), message.reasoning_content, "completed"));
  }
  if (!message.content.empty() || message.tool_calls.empty()) {
    output.push_back(items.message(index(), message.content, "completed",
                                   logprobs_json(content_tokens(choice.tokens, message.content))));
  }
  for (const ToolCall& call : message.tool_calls) output.push_back(items.call(index(), call, "completed"));
  return finished(metadata, choice, usage, std::move(output));
}

}  // namespace

const ApiDialect& responses_dialect() {
  static const ApiDialect dialect = {.fields = {kFields, kSamplingFields, kThinkingFields},
                                     .unsupported = kUnsupported,
                                     .read = read,
                                     .echo = echo,
                                     .make_stream = [](ResponseMetadata metadata) -> std::unique_ptr<StreamWriter> {
                                       return std::make_unique<ResponseStream>(std::move(metadata));
                                     },
                                     .make_response = make_response};
  return dialect;
}

}  // namespace zinc
