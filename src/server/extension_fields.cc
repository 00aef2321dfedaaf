#include "server/extension_fields.h"

#include "server/request_fields.h"

namespace zinc {
namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

constexpr FieldDoc kExtensionDocs[] = {
    {"min_tokens", "integer", "No end token is sampled before this many output tokens. Default 0."},
    {"stop_token_ids", "array", "Token ids at which generation stops. Not part of the output."},
    {"include_stop_str_in_output", "boolean", "true: the stop string is part of the output. Default false."},
    {"skip_special_tokens", "boolean", "false: control tokens are part of the output, as text. Default true."},
    {"allowed_token_ids", "array", "No other token is sampled; end tokens must be in the list to be sampled."},
    {"structured_outputs", "object",
     "Structured output: one of json (a schema), regex, choice (an array of strings), grammar (GBNF), json_object "
     "(true)."},
    {"guided_json", "", "As structured_outputs.json."},
    {"guided_regex", "string", "As structured_outputs.regex."},
    {"guided_choice", "array", "As structured_outputs.choice."},
    {"guided_grammar", "string", "As structured_outputs.grammar."},
    {"truncate_prompt_tokens", "integer",
     "Keeps only the last tokens of the prompt, at most this many; -1: as many as the context holds. Default: a prompt "
     "that is too long is an error."},
    {"cache_salt", "string", "Cached prefixes are shared only between requests with the same salt."},
    {"speculate", "string",
     "Speculative decoding of this request: auto, off, ngram, mtp or draft. Default: the server's. A server with "
     "another "
     "drafter refuses mtp and draft, one with --speculate off also ngram. The output does not depend on it."},
    {"n_predict", "integer", "Alias of max_tokens."},
    {"use_beam_search", "boolean", "Must be false."},
    {"cache_prompt", "boolean", "No effect: cached prefixes are always used and do not change the output."},
    {"priority", "integer", "No effect."},
    {"request_id", "string", "No effect."},
    {"spaces_between_special_tokens", "boolean", "No effect."},
    {"length_penalty", "number", "No effect."},
};

std::string gbnf_literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      out += c;
    }
  }
  return out + '"';
}

ResponseFormat text_format(ResponseFormat::Kind kind, std::string text) {
  return {.kind = kind, .field = {}, .schema = {}, .grammar = std::move(text)};
}

void read_choice(const FieldReader& fields, std::string_view name, ChatRequest& out) {
  if (!fields.value(name)) return;
  const std::vector<std::string> choices = fields.texts(name);
  std::string grammar;
  for (const std::string& choice : choices) grammar += (grammar.empty() ? "root ::= " : " | ") + gbnf_literal(choice);
  if (choices.empty()) {
    return fields.errors().add(fields.name_of(name), "'{}' is empty; expected at least one string",
                               fields.name_of(name));
  }
  set_response_format(fields, name, text_format(ResponseFormat::Kind::grammar, std::move(grammar)), out);
}

// vLLM takes a schema as an object or as its JSON text.
void read_schema(const FieldReader& fields, std::string_view name, ChatRequest& out) {
  const json::value* value = fields.value(name);
  if (!value) return;
  if (!value->is_string()) return set_response_format(fields, name, schema_format(value), out);
  const Result<json::value> parsed = parse_json(text_of(value->get_string()));
  if (!parsed.ok()) return fields.errors().add(fields.name_of(name), "'{}': {}", name, parsed.error().message);
  set_response_format(fields, name, schema_format(&parsed.value()), out);
}

void read_guide(const FieldReader& fields, std::string_view prefix, ChatRequest& out) {
  const auto name = [&](std::string_view kind) { return std::string(prefix) + std::string(kind); };
  read_schema(fields, name("json"), out);
  read_choice(fields, name("choice"), out);
  if (auto regex = fields.text(name("regex"))) {
    set_response_format(fields, name("regex"), text_format(ResponseFormat::Kind::regex, std::move(*regex)), out);
  }
  if (auto grammar = fields.text(name("grammar"))) {
    set_response_format(fields, name("grammar"), text_format(ResponseFormat::Kind::grammar, std::move(*grammar)), out);
  }
}

void read_structured_outputs(const FieldReader& fields, ChatRequest& out) {
  read_guide(fields, "guided_", out);
  const json::object* wanted = fields.object("structured_outputs");
  if (!wanted) return;
  const FieldReader inside(*wanted, "structured_outputs.", fields.errors());
  read_guide(inside, "", out);
  if (inside.boolean("json_object").value_or(false)) {
    set_response_format(inside, "json_object", schema_format(nullptr), out);
  }
}

}  // namespace

const std::span<const FieldDoc> kExtensionFields = kExtensionDocs;

void read_extensions(const FieldReader& fields, ChatRequest& out) {
  out.options.min_tokens = static_cast<int>(fields.integer("min_tokens", 0, kMaxCount).value_or(0));
  out.options.stop_tokens = read_token_ids(fields, "stop_token_ids");
  out.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  out.options.show_control = !fields.boolean("skip_special_tokens").value_or(true);
  out.allowed_tokens = read_token_ids(fields, "allowed_token_ids");
  read_structured_outputs(fields, out);
  if (const auto n = fields.integer("truncate_prompt_tokens", ChatRequest::kWholeContext, kMaxCount)) {
    out.max_prompt_tokens = static_cast<int>(*n);
  }
  out.cache_salt = fields.text("cache_salt").value_or("");
  if (const auto name = fields.text("speculate")) {
    out.speculation = parse_speculation_mode(*name);
    if (!out.speculation) {
      fields.errors().add("speculate", "'speculate' is '{}'; expected {}", *name, kSpeculationModeNames);
    }
  }
  if (const std::optional<int> limit = read_token_limit(fields, "n_predict")) out.options.max_tokens = *limit;
  if (out.options.max_tokens > 0 && out.options.min_tokens > out.options.max_tokens) {
    fields.errors().add("min_tokens", "'min_tokens' is {}, more than the {} of 'max_tokens'", out.options.min_tokens,
                        out.options.max_tokens);
  }
  if (fields.boolean("use_beam_search").value_or(false)) {
    fields.errors().add(unsupported_field("use_beam_search", "'use_beam_search' is not supported"));
  }
}

}  // namespace zinc
