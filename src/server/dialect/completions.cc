// POST /v1/completions: completes a raw prompt, without a chat template.
#include <fmt/format.h>

#include <cmath>

#include "base/utf8.h"
#include "server/api_dialect.h"
#include "server/extension_fields.h"
#include "server/request_fields.h"

namespace zinc {
namespace {

constexpr int kDefaultMaxTokens = 16;  // OpenAI's default

constexpr FieldDoc kFields[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"prompt", "",
     "Required. A string, an array of token ids, or an array of either; prompts times n is at most 2,048."},
    {"max_tokens", "integer",
     "Maximum output tokens; 0: only the prompt, for echo and log-probabilities; -1: until the context is full. "
     "Default 16."},
    {"n", "integer", "Number of choices per prompt, at most 128. Default 1."},
    {"best_of", "integer", "Must equal n."},
    {"stop", "", "A string or up to 16, of at most 256 bytes each; generation stops there. Not part of the output."},
    {"stream", "boolean", "Streams the response as server-sent events. Default false."},
    {"stream_options", "object", "include_usage: a final event with token counts. Default false."},
    {"logprobs", "integer",
     "Alternatives per token, 0 to 20; with echo also for the prompt's tokens. Default: no log-probabilities."},
    {"prompt_logprobs", "integer",
     "Log-probabilities of the prompt's tokens with so many alternatives, 0 to 20, as prompt_logprobs of each choice "
     "(as in vLLM). Default: none."},
    {"echo", "boolean", "Puts the prompt before the output. Default false."},
    {"parse_special", "boolean", "Parses the names of control tokens in the prompt as control tokens. Default false."},
    {"add_special_tokens", "boolean", "Adds the BOS token if the model uses one. Default true."},
    {"suffix", "string",
     "Text after the output: fill-in-the-middle, for models with tokens for it. prompt must be one string."},
    {"response_format", "object", "As in /v1/chat/completions."},
    {"user", "string", "No effect."},
};

std::optional<std::vector<TokenId>> token_list(const json::array& array) {
  std::vector<TokenId> out;
  for (const json::value& element : array) {
    if (!element.is_int64() || element.get_int64() < 0 || element.get_int64() > std::numeric_limits<TokenId>::max()) {
      return std::nullopt;
    }
    out.push_back(static_cast<TokenId>(element.get_int64()));
  }
  return out;
}

}  // namespace

void read_prompts(const FieldReader& fields, ChatRequest& out) {
  const json::value* prompt = fields.value("prompt");
  const auto wrong = [&] {
    fields.errors().add("prompt",
                        "'prompt' is {}; expected a string, an array of token ids, or a non-empty array of either",
                        prompt ? json_type(*prompt) : "missing");
  };
  if (!prompt) return wrong();
  if (prompt->is_string()) return out.prompts.emplace_back(text_of(prompt->get_string())), void();
  if (!prompt->is_array() || prompt->get_array().empty()) return wrong();
  const json::array& array = prompt->get_array();
  if (array.front().is_number()) {
    auto tokens = token_list(array);
    if (!tokens) return wrong();
    return out.prompts.emplace_back(std::move(*tokens)), void();
  }
  for (const json::value& element : array) {
    auto tokens = element.is_array() ? token_list(element.get_array()) : std::nullopt;
    if (element.is_string()) {
      out.prompts.emplace_back(text_of(element.get_string()));
    } else if (tokens) {
      out.prompts.emplace_back(std::move(*tokens));
    } else {
      return wrong();
    }
  }
}

namespace {

void read_prompt_logprobs(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out) {
  if (out.echo) out.options.n_prompt_logprobs = out.options.n_top_logprobs;
  if (const auto n = fields.integer("prompt_logprobs", 0, limits.top_logprobs)) {
    out.options.n_prompt_logprobs = static_cast<int>(*n);
  }
  if (out.options.n_prompt_logprobs < 0 || !out.stream) return;
  fields.errors().add(unsupported_field("stream", "'stream' cannot be combined with the prompt's log-probabilities"));
}

void read(const json::object& body, const ServerLimits& limits, RequestErrors& errors, ChatRequest& out) {
  const FieldReader fields(body, "", errors);
  fields.check_known({kFields, kGrammarFields, kExtensionFields, kSamplingFields});
  out.model = fields.text("model").value_or("");
  read_prompts(fields, out);
  const json::value* limit = fields.value("max_tokens");
  out.options.prompt_only = limit && limit->is_int64() && limit->get_int64() == 0;
  if (!out.options.prompt_only)
    out.options.max_tokens = read_token_limit(fields, "max_tokens").value_or(kDefaultMaxTokens);
  read_n(fields, limits, out);
  if (const auto best_of = fields.integer("best_of", 1, limits.n); best_of && *best_of != out.n) {
    errors.add("best_of", "'best_of' is {}; expected {}, the value of 'n': choices are not ranked", *best_of, out.n);
  }
  if (out.prompts.size() * static_cast<size_t>(out.n) > static_cast<size_t>(limits.choices)) {
    errors.add("prompt", "{} prompts times n = {} exceed the limit of {} choices per request", out.prompts.size(),
               out.n, limits.choices);
  }
  read_stop(fields, "stop", limits, out);
  out.stream = fields.boolean("stream").value_or(false);
  if (const json::object* options = fields.object("stream_options")) {
    out.include_usage = FieldReader(*options, "stream_options.", errors).boolean("include_usage").value_or(false);
  }
  out.options.n_top_logprobs = static_cast<int>(fields.integer("logprobs", 0, limits.top_logprobs).value_or(-1));
  out.echo = fields.boolean("echo").value_or(false);
  read_prompt_logprobs(fields, limits, out);
  out.parse_special = fields.boolean("parse_special").value_or(false);
  out.add_special = fields.boolean("add_special_tokens").value_or(true);
  if (std::optional<std::string> suffix = fields.text("suffix"); suffix && !suffix->empty()) out.suffix = *suffix;
  read_response_format(fields, "response_format", out);
  read_grammar_fields(fields, out);
  read_sampling(fields, out);
  read_extensions(fields, out);
}

size_t n_characters(std::string_view text) {
  size_t n = 0;
  for (; !text.empty(); ++n) text.remove_prefix(static_cast<size_t>(next_utf8(text).n_bytes));
  return n;
}

json::object completion_logprobs(std::span<const LogprobToken> tokens, size_t offset) {
  json::array texts, logprobs, tops, offsets;
  for (const LogprobToken& token : tokens) {
    texts.emplace_back(token.text);
    json::object top;
    for (const LogprobToken& other : token.top) top[other.text] = other.logprob;
    const bool has_none = std::isnan(token.logprob);  // the first token of a prompt
    logprobs.push_back(has_none ? json::value() : json::value(token.logprob));
    tops.push_back(has_none ? json::value() : json::value(std::move(top)));
    offsets.push_back(offset);
    offset += n_characters(token.text);
  }
  json::object out;
  out["tokens"] = std::move(texts);
  out["token_logprobs"] = std::move(logprobs);
  out["top_logprobs"] = std::move(tops);
  out["text_offset"] = std::move(offsets);
  return out;
}

// The prompt's tokens, then the output's.
std::vector<LogprobToken> echoed_tokens(const Choice& choice) {
  std::vector<LogprobToken> out = choice.prompt_tokens;
  out.insert(out.end(), choice.tokens.begin(), choice.tokens.end());
  return out;
}

// vLLM's form: per token the chosen one and the alternatives, by id.
json::array prompt_logprobs_json(std::span<const LogprobToken> tokens) {
  json::array out;
  for (const LogprobToken& token : tokens) {
    if (std::isnan(token.logprob)) {
      out.push_back(nullptr);
      continue;
    }
    json::object entry;
    entry[std::to_string(token.id)] = {{"logprob", token.logprob}, {"decoded_token", token.text}};
    int rank = 0;
    for (const LogprobToken& other : token.top) {
      entry[std::to_string(other.id)] = {{"logprob", other.logprob}, {"rank", ++rank}, {"decoded_token", other.text}};
    }
    out.push_back(std::move(entry));
  }
  return out;
}

constexpr CompletionObjectNames kName = {"cmpl-", "text_completion", "text_completion"};

class CompletionStream final : public CompletionStreamWriter {
 public:
  explicit CompletionStream(ResponseMetadata metadata) : CompletionStreamWriter(kName, std::move(metadata)) {}

  void delta(int choice, const Delta& delta, std::span<const LogprobToken> tokens, std::string& out) override {
    if (const auto* text = std::get_if<ContentDelta>(&delta)) chunk(choice, text->text, tokens, "null", out);
  }
  void end_choice(int index, const Choice& choice, std::span<const LogprobToken> tokens, std::string& out) override {
    chunk(index, "", tokens, quote_json(finish_reason(choice)), out);
  }

 private:
  void chunk(int choice, std::string_view text, std::span<const LogprobToken> tokens, std::string_view reason,
             std::string& out) {
    if (offsets_.size() <= static_cast<size_t>(choice)) offsets_.resize(static_cast<size_t>(choice) + 1);
    size_t& offset = offsets_[static_cast<size_t>(choice)];
    const bool has_logprobs = metadata_.with_logprobs && !tokens.empty();
    event(choice,
          fmt::format(R"("text":{},"logprobs":{},"finish_reason":{})", quote_json(text),
                      has_logprobs ? to_json(completion_logprobs(tokens, offset)) : "null", reason),
          "", out);
    for (const LogprobToken& token : tokens) offset += n_characters(token.text);
  }

  std::vector<size_t> offsets_;
};

json::object make_response(const ResponseMetadata& metadata, std::span<const Choice> choices, const UsageTotal& usage) {
  json::array list;
  for (const Choice& choice : choices) {
    json::object entry{{"index", list.size()}, {"text", choice.message.content}};
    const bool is_echoed = metadata.is_echoed && !choice.prompt_tokens.empty();
    const std::vector<LogprobToken> tokens = is_echoed ? echoed_tokens(choice) : choice.tokens;
    entry["logprobs"] = metadata.with_logprobs ? json::value(completion_logprobs(tokens, 0)) : json::value(nullptr);
    if (!choice.prompt_tokens.empty()) entry["prompt_logprobs"] = prompt_logprobs_json(choice.prompt_tokens);
    entry["finish_reason"] = finish_reason(choice);
    list.push_back(std::move(entry));
  }
  return completion_object(kName, metadata, std::move(list), usage, choices.front());
}

}  // namespace

const ApiDialect& completions_dialect() {
  static const ApiDialect dialect = {.fields = {kFields, kGrammarFields, kExtensionFields, kSamplingFields},
                                     .read = read,
                                     .echo = [](const ChatRequest&, const json::object&) { return json::object(); },
                                     .make_stream = [](ResponseMetadata metadata) -> std::unique_ptr<StreamWriter> {
                                       return std::make_unique<CompletionStream>(std::move(metadata));
                                     },
                                     .make_response = make_response};
  return dialect;
}

}  // namespace zinc
