#include "server/request_fields.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/sanitize_for_terminal.h"
#include "graph/sampling_fields.h"

namespace zinc {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

struct Alias {
  std::string_view name, field;
};
constexpr Alias kAliases[] = {{"repetition_penalty", "repeat_penalty"}, {"dry_penalty_last_n", "dry_last_n"}};

constexpr FieldDoc kOtherSamplingDocs[] = {
    {"dry_sequence_breakers", "array", "Strings that end a repetition for DRY. Default \\n : \" *"},
    {"logit_bias", "object",
     "Maps a token id (as a string) to a value from -100 to 100 that is added to its logit; at most 1024 entries. "
     "Default none."},
    {"seed", "integer",
     "Any 64-bit integer; makes sampling reproducible. Default, and -1: random, written to the log line."},
    {"ignore_eos", "boolean", "Does not stop at EOS tokens. Default false."},
};

// "Keep the k most likely tokens (0: off). 0 or more. Default: the model's."
std::string doc_of(const SamplingField& field) {
  std::string help(field.help);
  help[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(help[0])));
  const std::string_view off = field.name == "top_k" ? ", -1 as 0" : "";  // vLLM's value for "off"
  return fmt::format("{}. {}{}. Default: {}.", help, range_text(field), off,
                     field.is_recommended ? "the model's" : field_text(field, SamplingParams()));
}

std::span<const FieldDoc> sampling_docs() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> out;
    for (const SamplingField& field : sampling_fields()) out.push_back(doc_of(field));
    for (const Alias& alias : kAliases) out.push_back(fmt::format("Alias of {}.", alias.field));
    return out;
  }();
  static const std::vector<FieldDoc> docs = [] {
    std::vector<FieldDoc> out;
    const auto type_of = [](const SamplingField& field) { return field.member.index() == 0 ? "number" : "integer"; };
    const auto field_of = [](std::string_view name) {
      return *std::ranges::find(sampling_fields(), name, &SamplingField::name);
    };
    for (const SamplingField& field : sampling_fields()) out.push_back({field.name, type_of(field), texts[out.size()]});
    for (const Alias& alias : kAliases) out.push_back({alias.name, type_of(field_of(alias.field)), texts[out.size()]});
    out.insert(out.end(), std::begin(kOtherSamplingDocs), std::end(kOtherSamplingDocs));
    return out;
  }();
  return docs;
}

void read_number(const FieldReader& fields, std::string_view name, const SamplingField& field, ChatRequest& out) {
  if (auto* const real = std::get_if<float SamplingParams::*>(&field.member)) {
    const auto number = fields.number(name);
    if (!number) return;
    out.options.sampling.** real = static_cast<float>(*number);
  } else {
    const auto number = fields.integer(name, std::numeric_limits<int32_t>::min(), kMaxInt);
    if (!number) return;
    const bool is_off = *number == -1 && field.name == "top_k";
    out.options.sampling.*std::get<int32_t SamplingParams::*>(field.member) =
        is_off ? 0 : static_cast<int32_t>(*number);
  }
  out.sampling_fields.emplace_back(field.name);
}

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
      return errors.add("logit_bias", "a key of 'logit_bias' is not a token id; expected an integer as a string");
    }
    const std::optional<double> bias = inside.number(key);
    if (bias) out.options.sampling.logit_bias.push_back({token, static_cast<float>(*bias)});
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

void read_tool_calls(const json::array& calls, const std::string& path, json::object& out, RequestErrors& errors) {
  json::array entries;
  for_each_object(calls, path + "tool_calls", errors, [&](const FieldReader& fields) {
    const json::object* function = fields.object("function");
    const std::string at = fields.name_of("function");
    if (!function) return errors.add(at, "'{}' is missing; only function calls are supported", at);
    const FieldReader inside(*function, at + ".", errors);
    const json::value* arguments = inside.value("arguments");
    entries.push_back(tool_call_entry(fields.text("id").value_or(""), inside.required_text("name"),
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
  const auto reasoning = fields.text("reasoning_content");
  if (reasoning) out["reasoning_content"] = *reasoning;
  if (const json::array* calls = fields.array("tool_calls")) read_tool_calls(*calls, path, out, errors);
  if (fields.value("function_call")) {
    errors.add(unsupported_field(path + "function_call", "'function_call' is not supported; use 'tool_calls'"));
  }
  return out;
}

}  // namespace

const std::span<const FieldDoc> kSamplingFields = sampling_docs();

void read_sampling(const FieldReader& fields, ChatRequest& out) {
  for (const SamplingField& field : sampling_fields()) {
    read_number(fields, field.name, field, out);
    for (const Alias& alias : kAliases) {
      if (alias.field == field.name) read_number(fields, alias.name, field, out);
    }
  }
  if (fields.value("dry_sequence_breakers")) out.options.sampling.dry_breakers = fields.texts("dry_sequence_breakers");
  read_logit_bias(fields, out);
  const json::value* large = fields.value("seed");
  if (large && large->is_uint64()) {  // as written in the log line
    out.seed = large->get_uint64();
  } else if (const auto seed =
                 fields.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max())) {
    if (*seed != -1) out.seed = static_cast<uint64_t>(*seed);  // -1: random, as in llama.cpp
  }
  out.options.ignore_eos = fields.boolean("ignore_eos").value_or(false);
}

void apply_sampling_defaults(const SamplingParams& defaults, ChatRequest& out) {
  for (const SamplingField& field : sampling_fields()) {
    if (!std::ranges::count(out.sampling_fields, field.name)) copy_field(field, defaults, out.options.sampling);
  }
  const bool is_greedy =
      out.options.sampling.temperature <= kGreedyTemperature;  // then only a penalty that is asked for
  if (is_greedy && !std::ranges::count(out.sampling_fields, "dry_multiplier")) out.options.sampling.dry_multiplier = 0;
}

void read_stop(const FieldReader& fields, std::string_view name, const ServerLimits& limits, ChatRequest& out) {
  out.options.stop = fields.texts(name);
  if (out.options.stop.size() > static_cast<size_t>(limits.stop_strings)) {
    fields.errors().add(name, "'{}' has {} strings; expected at most {}", name, out.options.stop.size(),
                        limits.stop_strings);
  }
  for (const std::string& stop : out.options.stop) {
    if (stop.empty() || stop.size() > limits.stop_string_bytes) {
      fields.errors().add(name, "'{}' has a string of {} bytes; expected 1 to {}", name, stop.size(),
                          limits.stop_string_bytes);
    }
  }
}

void read_n(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out) {
  out.n = static_cast<int>(fields.integer("n", 1, limits.n).value_or(1));
}

void set_response_format(const FieldReader& fields, std::string_view name, ResponseFormat format, ChatRequest& out) {
  const std::string field = fields.name_of(name);
  if (out.response_format.kind != ResponseFormat::Kind::text) {
    return fields.errors().add(field, "'{}' and '{}' both set the output format; use only one of them", field,
                               out.response_format.field);
  }
  format.field = field;
  out.response_format = std::move(format);
}

ResponseFormat schema_format(const json::value* schema) {
  if (!schema) return {.kind = ResponseFormat::Kind::json_object, .field = {}, .schema = {}, .grammar = {}};
  return {.kind = ResponseFormat::Kind::json_schema, .field = {}, .schema = *schema, .grammar = {}};
}

void read_response_format(const FieldReader& fields, std::string_view name, ChatRequest& out) {
  const json::object* format = fields.object(name);
  if (!format) return;
  const FieldReader inside(*format, fields.name_of(name) + ".", fields.errors());
  const std::string type = inside.required_text("type");
  if (type == "text" || fields.errors().any()) return;
  if (type == "json_object") return set_response_format(fields, name, schema_format(inside.value("schema")), out);
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
  set_response_format(fields, name, schema_format(schema), out);
}

constexpr FieldDoc kGrammarDocs[] = {
    {"grammar", "string", "Constrains the output to this GBNF grammar (as in llama.cpp)."},
    {"json_schema", "object", "Constrains the output to this JSON schema (as in llama.cpp)."},
};
const std::span<const FieldDoc> kGrammarFields = kGrammarDocs;

void read_grammar_fields(const FieldReader& fields, ChatRequest& out) {
  if (std::optional<std::string> grammar = fields.text("grammar"); grammar && !grammar->empty()) {
    set_response_format(
        fields, "grammar",
        {.kind = ResponseFormat::Kind::grammar, .field = {}, .schema = {}, .grammar = std::move(*grammar)}, out);
  }
  if (const json::object* schema = fields.object("json_schema")) {
    const json::value value = *schema;
    set_response_format(fields, "json_schema", schema_format(&value), out);
  }
}

std::optional<int> read_token_limit(const FieldReader& fields, std::string_view name) {
  constexpr int64_t kNoLimit = -1;  // as in LM Studio and llama.cpp
  const json::value* value = fields.value(name);
  if (value && value->is_int64() && value->get_int64() == kNoLimit) return 0;
  const auto limit = fields.integer(name, 1, kMaxInt);
  return limit ? std::optional<int>(static_cast<int>(*limit)) : std::nullopt;
}

std::vector<TokenId> read_token_ids(const FieldReader& fields, std::string_view name) {
  std::vector<TokenId> out;
  const json::array* ids = fields.array(name);
  if (!ids) return out;
  for (const json::value& id : *ids) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > kMaxInt) {
      fields.errors().add(name, "'{}[{}]' is {}; expected a token id", name, out.size(), json_type(id));
      return {};
    }
    out.push_back(static_cast<TokenId>(id.get_int64()));
  }
  return out;
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
          unsupported_field(at, fmt::format("'{}' is '{}'; this server supports text only", at, type.substr(0, 40))));
    }
    out += fields.required_text("text");
  });
  return out;
}

json::object tool_call_entry(std::string_view id, std::string_view name, const json::value& arguments) {
  json::value inside = arguments;
  if (arguments.is_string()) {  // templates expect an object; arguments that are not valid JSON stay a string
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
  if (fields.boolean("strict").value_or(false)) function["strict"] = true;  // read_tool_list() takes it out
  json::object out{{"type", "function"}};
  out["function"] = std::move(function);
  return out;
}

void read_tool_list(const FieldReader& fields, ChatRequest& out, json::object (*read_one)(const FieldReader& tool)) {
  const json::array* tools = fields.array("tools");
  if (!tools || tools->empty()) return;
  json::array entries;
  for_each_object(*tools, "tools", fields.errors(), [&](const FieldReader& tool) {
    json::object entry = read_one(tool);
    if (!entry.empty()) return entries.push_back(std::move(entry)), void();
    out.notes.push_back(fmt::format("{} has type '{}' and was left out: this server cannot run it",
                                    tool.path().substr(0, tool.path().size() - 1),
                                    sanitize_for_terminal(tool.text("type").value_or(""), 40)));
  });
  for (json::value& entry : entries) {
    json::value* const function = entry.get_object().if_contains("function");
    if (!function || function->get_object().erase("strict") == 0) continue;
    out.strict_tools.push_back(text_of(function->at("name").get_string()));
  }
  if (!entries.empty()) out.tools = std::move(entries);
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
    if (tool.required_text("type") != "function") return json::object();
    const json::object* function = tool.object("function");
    const std::string at = tool.name_of("function");
    if (!function) tool.errors().add(at, "'{}' is missing", at);
    return function ? function_tool(FieldReader(*function, at + ".", tool.errors()), "parameters") : json::object();
  });
}

namespace {

// The tool of a choice: {"type": "function", "function": {"name": ...}}, or the name beside the type.
std::string chosen_function(const FieldReader& choice) {
  if (const json::object* function = choice.object("function")) {
    return FieldReader(*function, choice.name_of("function") + ".", choice.errors()).required_text("name");
  }
  return choice.required_text("name");
}

// {"type": "allowed_tools", "mode": "auto" or "required", "tools": [...]}; chat completions wrap mode and tools once
// more.
void read_allowed_tools(const FieldReader& choice, ChatRequest& out) {
  if (const json::object* inside = choice.object("allowed_tools")) {
    return read_allowed_tools(FieldReader(*inside, choice.name_of("allowed_tools") + ".", choice.errors()), out);
  }
  const std::string mode = choice.required_text("mode"), at = choice.name_of("mode");
  if (mode != "auto" && mode != "required") choice.errors().add(at, "'{}' must be 'auto' or 'required'", at);
  const json::array* tools = choice.array("tools");
  const std::string list = choice.name_of("tools");
  if (!tools || tools->empty()) return choice.errors().add(list, "'{}' is missing or empty", list);
  out.tool_choice.requires_call = mode == "required";
  for_each_object(*tools, list, choice.errors(),
                  [&](const FieldReader& tool) { out.tool_choice.names.push_back(chosen_function(tool)); });
}

}  // namespace

void read_tool_choice(const FieldReader& fields, ChatRequest& out) {
  const json::value* choice = fields.value("tool_choice");
  if (!choice) return;
  if (const json::object* object = choice->if_object()) {
    const FieldReader inside(*object, "tool_choice.", fields.errors());
    const std::string type = inside.required_text("type");
    if (type == "allowed_tools") return read_allowed_tools(inside, out);
    if (type == "function") {
      out.tool_choice = {.requires_call = true, .names = {chosen_function(inside)}, .is_named = true};
      return;
    }
    return fields.errors().add("tool_choice", "'tool_choice.type' must be 'function' or 'allowed_tools'");
  }
  const std::string word = choice->is_string() ? text_of(choice->get_string()) : "";
  if (word == "none") out.tools = nullptr;
  if (word == "required" || word == "any") out.tool_choice.requires_call = true;
  if (word != "auto" && word != "none" && !out.tool_choice.requires_call) {
    fields.errors().add("tool_choice",
                        "'tool_choice' must be 'auto', 'none', 'required' or an object that names tools");
  }
}

}  // namespace zinc
