#include "server/request_fields.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace zinc {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

struct FloatField {
  std::string_view name;
  float SamplingParams::*member;
};
struct IntField {
  std::string_view name;
  int32_t SamplingParams::*member;
};

constexpr FloatField kFloatFields[] = {
    {"temperature", &SamplingParams::temperature},
    {"top_p", &SamplingParams::top_p},
    {"min_p", &SamplingParams::min_p},
    {"repeat_penalty", &SamplingParams::repeat_penalty},
    {"repetition_penalty", &SamplingParams::repeat_penalty},
    {"frequency_penalty", &SamplingParams::frequency_penalty},
    {"presence_penalty", &SamplingParams::presence_penalty},
    {"dry_multiplier", &SamplingParams::dry_multiplier},
    {"dry_base", &SamplingParams::dry_base},
};
constexpr IntField kIntFields[] = {
    {"top_k", &SamplingParams::top_k},
    {"repeat_last_n", &SamplingParams::repeat_last_n},
    {"dry_allowed_length", &SamplingParams::dry_allowed_length},
    {"dry_last_n", &SamplingParams::dry_last_n},
};

constexpr FieldDoc kSamplingDocs[] = {
    {"temperature", "number", "0 to 2; 0 picks the most likely token. Default 1."},
    {"top_p", "number", "Keeps the fewest most likely tokens that together have this probability. Default 1: off."},
    {"top_k", "integer", "Keeps the k most likely tokens. Default 0: off."},
    {"min_p", "number", "Keeps tokens with this share of the most likely one's probability. Default 0: off."},
    {"repeat_penalty", "number", "Divides the logits of tokens seen. Default 1: off."},
    {"repetition_penalty", "number", "Another name of repeat_penalty."},
    {"frequency_penalty", "number", "-2 to 2, subtracted once per occurrence. Default 0: off."},
    {"presence_penalty", "number", "-2 to 2, subtracted once if a token occurs. Default 0: off."},
    {"repeat_last_n", "integer", "Tokens of history the three penalties see; -1: all. Default 64."},
    {"dry_multiplier", "number", "Strength of DRY. Default 0: off."},
    {"dry_base", "number", "Growth of DRY's penalty with the length of a repetition. Default 1.75."},
    {"dry_allowed_length", "integer", "Repetitions shorter than this cost nothing. Default 2."},
    {"dry_last_n", "integer", "Tokens of history DRY searches; -1: all. Default -1."},
    {"dry_sequence_breakers", "array", "Texts no repetition may contain. Default \\n : \" *"},
    {"logit_bias", "object", "Token id to a number from -100 to 100 that is added to its logit. Default none."},
    {"seed", "integer", "Makes sampling repeatable. Default: drawn anew and reported in the log line."},
    {"ignore_eos", "boolean", "End tokens are tokens like others. Default false."},
};

constexpr FieldDoc kThinkingDocs[] = {
    {"reasoning_effort", "string", "none, minimal, low, medium, high or xhigh; none switches thinking off."},
    {"enable_thinking", "boolean", "Switches thinking on or off where the template can. Default: the template's."},
    {"think", "boolean", "Another name of enable_thinking."},
    {"thinking_budget", "integer", "Tokens a thought may have before it is told to end. Default: no limit."},
    {"chat_template_kwargs", "object", "Further variables of the chat template."},
};

constexpr std::array kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh"};
constexpr std::array<std::string_view, 1> kTextParts = {"text"};

void read_logit_bias(const FieldReader& fields, ChatRequest& out) {
  const json::object* biases = fields.object("logit_bias");
  if (!biases) return;
  RequestErrors& errors = fields.errors();
  const FieldReader inside(*biases, fields.name_of("logit_bias."), errors);
  for (const auto& member : *biases) {
    const std::string_view key(member.key().data(), member.key().size());
    TokenId token = 0;
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (code != std::errc() || end != key.data() + key.size()) {
      return errors.add("logit_bias", "a key of 'logit_bias' is no token id; expected an integer as text");
    }
    const std::optional<double> bias = inside.number(key);
    if (bias) out.sampling.logit_bias.push_back({token, static_cast<float>(*bias)});
  }
}

std::string_view role_of(const FieldReader& fields) {
  static constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};
  const std::string role = fields.required_text("role");
  for (const std::string_view known : kRoles) {
    if (role == known) return known;
  }
  fields.errors().add(fields.name_of("role"), "'{}' is '{}'; expected system, developer, user, assistant or tool",
                      fields.name_of("role"), role.substr(0, 40));
  return "user";
}

void read_calls(const json::array& calls, const std::string& path, json::object& out, RequestErrors& errors) {
  json::array entries;
  for_each_object(calls, path + "tool_calls", errors, [&](const FieldReader& fields) {
    const json::object* function = fields.object("function");
    const std::string at = fields.name_of("function");
    if (!function) return errors.add(at, "'{}' is missing; only function calls are known", at);
    const FieldReader inside(*function, at + ".", errors);
    const json::value* arguments = inside.value("arguments");
    entries.push_back(call_entry(fields.text("id").value_or(""), inside.required_text("name"),
                                 arguments ? *arguments : json::value(json::object())));
  });
  if (!entries.empty()) out["tool_calls"] = std::move(entries);
}

json::object read_message(const FieldReader& fields) {
  json::object out;
  const std::string& path = fields.path();
  RequestErrors& errors = fields.errors();
  const std::string_view role = role_of(fields);
  out["role"] = role;
  const json::value* content = fields.value("content");
  const bool may_lack_content = role == "assistant";
  if (!content && !may_lack_content) errors.add(path + "content", "'{}content' is missing", path);
  out["content"] = content ? content_text(*content, path + "content", kTextParts, errors) : "";
  for (const std::string_view name : {"name", "tool_call_id"}) {
    if (const auto text = fields.text(name)) out[name] = *text;
  }
  if (role != "assistant") return out;
  const auto thought = fields.text("reasoning_content");
  if (thought) out["reasoning_content"] = *thought;
  if (const json::array* calls = fields.array("tool_calls")) read_calls(*calls, path, out, errors);
  if (fields.value("function_call")) {
    errors.add(unsupported_field(path + "function_call", "'function_call' is not supported; use 'tool_calls'"));
  }
  return out;
}

}  // namespace

const std::span<const FieldDoc> kSamplingFields = kSamplingDocs;
const std::span<const FieldDoc> kThinkingFields = kThinkingDocs;

void read_sampling(const FieldReader& fields, ChatRequest& out) {
  for (const FloatField& field : kFloatFields) {
    if (const auto number = fields.number(field.name)) out.sampling.*field.member = static_cast<float>(*number);
  }
  for (const IntField& field : kIntFields) {
    const auto number = fields.integer(field.name, std::numeric_limits<int32_t>::min(), kMaxInt);
    if (number) out.sampling.*field.member = static_cast<int32_t>(*number);
  }
  if (fields.value("dry_sequence_breakers")) out.sampling.dry_breakers = fields.texts("dry_sequence_breakers");
  read_logit_bias(fields, out);
  const json::value* large = fields.value("seed");
  if (large && large->is_uint64()) {  // as the log line has it
    out.seed = large->get_uint64();
  } else if (const auto seed =
                 fields.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max())) {
    out.seed = static_cast<uint64_t>(*seed);
  }
  out.ignore_eos = fields.boolean("ignore_eos").value_or(false);
}

void set_thinking(const FieldReader& fields, std::string_view name, bool on, ChatRequest& out) {
  if (out.thinking && *out.thinking != on) {
    fields.errors().add(fields.name_of(name), "'{}' switches thinking {}, another field of the request {}",
                        fields.name_of(name), on ? "on" : "off", on ? "off" : "on");
  }
  out.thinking = on;
}

bool check_effort(const FieldReader& fields, std::string_view name, const std::string& effort) {
  if (std::find(kEfforts.begin(), kEfforts.end(), effort) != kEfforts.end()) return true;
  fields.errors().add(fields.name_of(name), "'{}' is '{}'; expected none, minimal, low, medium, high or xhigh",
                      fields.name_of(name), effort.substr(0, 40));
  return false;
}

void set_effort(const FieldReader& fields, std::string_view name, const std::string& effort, ChatRequest& out) {
  if (!check_effort(fields, name, effort)) return;
  set_thinking(fields, name, effort != "none", out);
  if (effort != "none") out.template_kwargs["reasoning_effort"] = effort;
}

void read_thinking(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out) {
  if (const json::object* kwargs = fields.object("chat_template_kwargs")) {
    if (const size_t n = to_json(*kwargs).size(); n > limits.template_kwargs_bytes) {
      return fields.errors().add("chat_template_kwargs", "'chat_template_kwargs' has {} bytes; expected at most {}", n,
                                 limits.template_kwargs_bytes);
    }
    out.template_kwargs = *kwargs;
    const FieldReader inside(*kwargs, fields.name_of("chat_template_kwargs."), fields.errors());
    for (const std::string_view name : {"enable_thinking", "thinking"}) {
      if (const auto on = inside.boolean(name)) set_thinking(inside, name, *on, out);
    }
  }
  for (const std::string_view name : {"enable_thinking", "think"}) {
    if (const auto on = fields.boolean(name)) set_thinking(fields, name, *on, out);
  }
  if (const auto effort = fields.text("reasoning_effort")) set_effort(fields, "reasoning_effort", *effort, out);
  if (const auto budget = fields.integer("thinking_budget", 0, kMaxInt))
    out.thinking_budget = static_cast<int>(*budget);
}

void read_stop(const FieldReader& fields, std::string_view name, const ServerLimits& limits, ChatRequest& out) {
  out.stop = fields.texts(name);
  if (out.stop.size() > static_cast<size_t>(limits.stop_strings)) {
    fields.errors().add(name, "'{}' has {} strings; expected at most {}", name, out.stop.size(), limits.stop_strings);
  }
  for (const std::string& stop : out.stop) {
    if (stop.empty() || stop.size() > limits.stop_string_bytes) {
      fields.errors().add(name, "'{}' has a string of {} bytes; expected 1 to {}", name, stop.size(),
                          limits.stop_string_bytes);
    }
  }
}

void read_n(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out) {
  out.n = static_cast<int>(fields.integer("n", 1, limits.choices).value_or(1));
}

namespace {

void set_form(const FieldReader& fields, std::string_view name, FormRequest form, ChatRequest& out) {
  const std::string field = fields.name_of(name);
  if (out.form.kind != FormRequest::Kind::any) {
    return fields.errors().add(field, "'{}' and '{}' both say what form the answer has; give one of them", field,
                               out.form.field);
  }
  form.field = field;
  out.form = std::move(form);
}

// Where nothing is said of the document: any JSON object.
FormRequest schema_form(const json::value* schema) {
  if (!schema) return {.kind = FormRequest::Kind::json_object, .field = {}, .schema = {}, .grammar = {}};
  return {.kind = FormRequest::Kind::json_schema, .field = {}, .schema = *schema, .grammar = {}};
}

}  // namespace

void read_response_format(const FieldReader& fields, std::string_view name, ChatRequest& out) {
  const json::object* format = fields.object(name);
  if (!format) return;
  const FieldReader inside(*format, fields.name_of(name) + ".", fields.errors());
  const std::string type = inside.required_text("type");
  if (type == "text" || fields.errors().any()) return;
  if (type == "json_object") return set_form(fields, name, schema_form(inside.value("schema")), out);
  if (type != "json_schema") {
    const std::string field = inside.name_of("type");
    return fields.errors().add(unsupported_field(
        field, fmt::format("'{}' is '{}'; expected text, json_object or json_schema", field, type.substr(0, 40))));
  }
  const json::object* nested = inside.object("json_schema");
  const FieldReader holder(nested ? *nested : *format, nested ? inside.name_of("json_schema.") : inside.path(),
                           fields.errors());
  const json::value* schema = holder.value("schema");
  if (!schema) return fields.errors().add(holder.name_of("schema"), "'{}' is missing", holder.name_of("schema"));
  set_form(fields, name, schema_form(schema), out);
}

constexpr FieldDoc kForms[] = {
    {"grammar", "string", "The answer is a text of this grammar, in llama.cpp's notation (GBNF)."},
    {"json_schema", "object", "The answer is a JSON document of this schema."},
};
const std::span<const FieldDoc> kFormFields = kForms;

void read_form(const FieldReader& fields, ChatRequest& out) {
  if (std::optional<std::string> grammar = fields.text("grammar"); grammar && !grammar->empty()) {
    set_form(fields, "grammar",
             {.kind = FormRequest::Kind::grammar, .field = {}, .schema = {}, .grammar = std::move(*grammar)}, out);
  }
  if (const json::object* schema = fields.object("json_schema")) {
    const json::value value = *schema;
    set_form(fields, "json_schema", schema_form(&value), out);
  }
}

std::optional<int> read_token_limit(const FieldReader& fields, std::string_view name) {
  const auto limit = fields.integer(name, 1, kMaxInt);
  return limit ? std::optional<int>(static_cast<int>(*limit)) : std::nullopt;
}

std::string content_text(const json::value& content, const std::string& path,
                         std::span<const std::string_view> text_types, RequestErrors& errors) {
  if (content.is_string()) return text_of(content.get_string());
  if (!content.is_array()) {
    errors.add(path, "'{}' is {}; expected a string or an array of parts", path, json_type(content));
    return {};
  }
  std::string out;
  for_each_object(content.get_array(), path, errors, [&](const FieldReader& fields) {
    const std::string type = fields.required_text("type");
    if (errors.any()) return;
    if (std::find(text_types.begin(), text_types.end(), type) == text_types.end()) {
      const std::string at = fields.name_of("type");
      return errors.add(
          unsupported_field(at, fmt::format("'{}' is '{}'; this server takes text only", at, type.substr(0, 40))));
    }
    out += fields.required_text("text");
  });
  return out;
}

json::object call_entry(std::string_view id, std::string_view name, const json::value& arguments) {
  json::value inside = arguments;
  if (arguments.is_string()) {  // templates write objects; what is no JSON stays the text it is
    const Result<json::value> parsed = parse_json(text_of(arguments.get_string()));
    if (parsed.ok() && parsed.value().is_object()) inside = parsed.value();
  }
  json::object function{{"name", name}};
  function["arguments"] = std::move(inside);
  json::object out{{"id", id}, {"type", "function"}};
  out["function"] = std::move(function);
  return out;
}

json::object function_tool(const FieldReader& fields, std::string_view schema) {
  json::object function{{"name", fields.required_text("name")}};
  if (const json::value* description = fields.value("description")) function["description"] = *description;
  const json::object* parameters = fields.object(schema);
  function["parameters"] = parameters ? *parameters : json::object{{"type", "object"}, {"properties", json::object()}};
  json::object out{{"type", "function"}};
  out["function"] = std::move(function);
  return out;
}

json::object refuse_own_tool(const FieldReader& tool, std::string_view expected) {
  const std::string at = tool.name_of("type");
  tool.errors().add(
      unsupported_field(at, fmt::format("'{}' is '{}'; expected '{}': this server has no tools of its own", at,
                                        tool.text("type").value_or("").substr(0, 40), expected)));
  return {};
}

void read_tool_list(const FieldReader& fields, ChatRequest& out, json::object (*read_one)(const FieldReader& tool)) {
  const json::array* tools = fields.array("tools");
  if (!tools || tools->empty()) return;
  json::array entries;
  for_each_object(*tools, "tools", fields.errors(),
                  [&](const FieldReader& tool) { entries.push_back(read_one(tool)); });
  out.tools = std::move(entries);
}

void read_messages(const FieldReader& fields, ChatRequest& out) {
  RequestErrors& errors = fields.errors();
  const json::array* messages = fields.array("messages");
  if (!messages || messages->empty()) {
    return errors.add("messages", "'messages' is {}; expected an array with at least one message",
                      messages ? "empty" : "missing");
  }
  for_each_object(*messages, "messages", errors,
                  [&](const FieldReader& message) { out.messages.push_back(read_message(message)); });
}

void read_tools(const FieldReader& fields, ChatRequest& out) {
  read_tool_list(fields, out, [](const FieldReader& tool) {
    if (tool.required_text("type") != "function") return refuse_own_tool(tool, "function");
    const json::object* function = tool.object("function");
    const std::string at = tool.name_of("function");
    if (!function) tool.errors().add(at, "'{}' is missing", at);
    return function ? function_tool(FieldReader(*function, at + ".", tool.errors()), "parameters") : json::object();
  });
}

void read_tool_choice(const FieldReader& fields, ChatRequest& out) {
  const json::value* choice = fields.value("tool_choice");
  if (!choice) return;
  const std::string word = choice->is_string() ? text_of(choice->get_string()) : "";
  if (word == "auto") return;
  if (word == "none") {
    out.tools = nullptr;
    return;
  }
  fields.errors().add(
      unsupported_field("tool_choice", "'tool_choice' must be 'auto' or 'none': calls cannot be forced here"));
}

}  // namespace zinc
