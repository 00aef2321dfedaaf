// POST /completion and /infill (llama.cpp's own API).
#include <fmt/format.h>

#include "server/api_dialect.h"
#include "server/request_fields.h"

namespace zinc {
namespace {

constexpr FieldDoc kPromptFields[] = {
    {"prompt", "", "Required. A string or an array of token ids."},
};
constexpr FieldDoc kInfillFields[] = {
    {"input_prefix", "string", "The text before the insertion."},
    {"input_suffix", "string", "The text after the insertion."},
    {"input_extra", "array", "Other files of the project: filename and text."},
    {"prompt", "string", "More text before the insertion."},
};
constexpr FieldDoc kFields[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"n_predict", "integer", "Maximum output tokens; -1: until the context is full. Default -1."},
    {"max_tokens", "integer", "Alias of n_predict."},
    {"stop", "array", "Up to 16 strings of at most 256 bytes; generation stops there. Not part of the output."},
    {"stream", "boolean", "Streams the response as server-sent events. Default false."},
    {"n_probs", "integer", "Alternatives per token, 0 to 20. Default 0: no probabilities."},
    {"return_tokens", "boolean", "Returns the ids of the generated tokens. Default false."},
    {"response_format", "object", "As in /v1/chat/completions."},
};
// Hints about caching, and samplers that this server does not have.
constexpr FieldDoc kIgnored[] = {
    {"cache_prompt", "boolean", "No effect: shared prefixes are always found."},
    {"id_slot", "integer", "No effect."},
    {"n_keep", "integer", "No effect: the output ends when the context is full."},
    {"n_discard", "integer", "No effect."},
    {"n_cache_reuse", "integer", "No effect."},
    {"n_indent", "integer", "No effect."},
    {"t_max_predict_ms", "integer", "No effect."},
    {"t_max_prompt_ms", "integer", "No effect."},
    {"timings_per_token", "boolean", "No effect: the last event has the timings."},
    {"return_progress", "boolean", "No effect."},
    {"post_sampling_probs", "boolean", "No effect: probabilities are the model's own."},
    {"response_fields", "array", "No effect."},
    {"samplers", "array", "No effect: the order is fixed."},
    {"dynatemp_range", "number", "No effect."},
    {"dynatemp_exponent", "number", "No effect."},
    {"typical_p", "number", "No effect."},
    {"xtc_probability", "number", "No effect."},
    {"xtc_threshold", "number", "No effect."},
    {"top_n_sigma", "number", "No effect."},
    {"mirostat", "integer", "No effect."},
    {"mirostat_tau", "number", "No effect."},
    {"mirostat_eta", "number", "No effect."},
    {"min_keep", "integer", "No effect."},
    {"dry_penalty_last_n", "integer", "No effect; use dry_last_n."},
    {"lora", "array", "No effect: this server has no adapters."},
};

void read_settings(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out) {
  out.model = fields.text("model").value_or("");
  for (const std::string_view name : {"max_tokens", "n_predict"}) {
    const auto limit = fields.integer(name, -2, std::numeric_limits<int32_t>::max());
    if (limit && *limit == 0) fields.errors().add(name, "'{}' is 0; expected 1 or more, or -1", name);
    if (limit) out.options.max_tokens = *limit > 0 ? static_cast<int>(*limit) : 0;
  }
  read_stop(fields, "stop", limits, out);
  out.stream = fields.boolean("stream").value_or(false);
  const auto n_probs = fields.integer("n_probs", 0, limits.top_logprobs);
  if (n_probs && *n_probs > 0) out.options.n_top_logprobs = static_cast<int>(*n_probs);
  out.return_tokens = fields.boolean("return_tokens").value_or(false);
  read_response_format(fields, "response_format", out);
  read_grammar_fields(fields, out);
  read_sampling(fields, out);
}

void read_completion(const json::object& body, const ServerLimits& limits, RequestErrors& errors, ChatRequest& out) {
  const FieldReader fields(body, "", errors);
  fields.check_known({kPromptFields, kFields, kIgnored, kGrammarFields, kSamplingFields});
  read_prompts(fields, out);
  if (out.prompts.size() > 1) errors.add("prompt", "'prompt' must be one prompt; /v1/completions takes several");
  out.parse_special = true;  // clients send the text of a rendered template
  read_settings(fields, limits, out);
}

void read_infill(const json::object& body, const ServerLimits& limits, RequestErrors& errors, ChatRequest& out) {
  const FieldReader fields(body, "", errors);
  fields.check_known({kInfillFields, kFields, kIgnored, kGrammarFields, kSamplingFields});
  out.prompts = {RawPrompt(fields.text("input_prefix").value_or("") + fields.text("prompt").value_or(""))};
  out.suffix = fields.text("input_suffix").value_or("");
  if (const json::array* files = fields.array("input_extra")) {
    for_each_object(*files, "input_extra", errors, [&](const FieldReader& file) {
      out.extra_files.push_back({.name = file.text("filename").value_or(""), .text = file.required_text("text")});
    });
  }
  read_settings(fields, limits, out);
}

std::string_view stop_type(const Choice& choice) {
  if (choice.reason == StopReason::stop_string) return "word";
  return choice.reason == StopReason::end_token ? "eos" : "limit";
}

json::object part(const ResponseMetadata& metadata, std::string_view content, std::span<const LogprobToken> tokens,
                  bool is_last) {
  json::array ids;
  for (const LogprobToken& token : tokens) {
    if (metadata.with_tokens) ids.push_back(token.id);
  }
  json::object out{{"index", 0}, {"content", content}, {"id_slot", 0}, {"stop", is_last}, {"model", metadata.model}};
  out["tokens"] = std::move(ids);
  out["tokens_evaluated"] = metadata.n_prompt_tokens;
  if (metadata.with_logprobs && !tokens.empty())
    out["completion_probabilities"] = logprobs_json(tokens, TokenIds::include);
  return out;
}

void add_last(const ResponseMetadata& metadata, const Choice& choice, json::object& out) {
  for (const auto& member : metadata.echoed) out[member.key()] = member.value();
  out["tokens_predicted"] = choice.usage.n_completion;
  out["tokens_cached"] = choice.usage.n_prompt + choice.usage.n_completion;
  out["truncated"] = choice.reason == StopReason::context_full;
  out["stop_type"] = stop_type(choice);
  out["stopping_word"] = choice.stop_string;
  out["timings"] = timings_json(choice);
}

class LlamaStream final : public StreamWriter {
 public:
  explicit LlamaStream(ResponseMetadata metadata) : metadata_(std::move(metadata)) {}

  void begin(std::string&) override {}
  void delta(int, const Delta& delta, std::span<const LogprobToken> tokens, std::string& out) override {
    if (const auto* text = std::get_if<ContentDelta>(&delta))
      out += sse_data(part(metadata_, text->text, tokens, false));
  }
  void end_choice(int, const Choice& choice, std::span<const LogprobToken> tokens, std::string& out) override {
    json::object last = part(metadata_, "", tokens, true);
    add_last(metadata_, choice, last);
    out += sse_data(last);
  }
  void end(const UsageTotal&, std::string&) override {}
  void error(const ApiError& error, std::string& out) override {
    out += sse_data(error_body(error, ErrorFormat::openai));
  }

 private:
  const ResponseMetadata metadata_;
};

json::object make_response(const ResponseMetadata& metadata, std::span<const Choice> choices, const UsageTotal&) {
  const Choice& choice = choices.front();
  json::object out = part(metadata, choice.message.content, choice.tokens, true);
  add_last(metadata, choice, out);
  return out;
}

json::object echo(const ChatRequest& request, const json::object& body) {
  const SamplingParams& sampling = request.options.sampling;
  json::object out{{"generation_settings",
                    {{"n_predict", request.options.max_tokens > 0 ? request.options.max_tokens : -1},
                     {"temperature", sampling.temperature},
                     {"top_k", sampling.top_k},
                     {"top_p", sampling.top_p},
                     {"min_p", sampling.min_p},
                     {"repeat_penalty", sampling.repeat_penalty},
                     {"n_probs", std::max(request.options.n_top_logprobs, 0)},
                     {"stream", request.stream}}}};
  if (const json::value* prompt = body.if_contains("prompt")) out["prompt"] = *prompt;
  return out;
}

ApiDialect make_dialect(std::span<const FieldDoc> fields, decltype(ApiDialect::read) read) {
  return {.fields = {fields, kFields, kGrammarFields, kSamplingFields, kIgnored},
          .read = read,
          .echo = echo,
          .make_stream = [](ResponseMetadata metadata) -> std::unique_ptr<StreamWriter> {
            return std::make_unique<LlamaStream>(std::move(metadata));
          },
          .make_response = make_response};
}

}  // namespace

const ApiDialect& llama_completion_dialect() {
  static const ApiDialect dialect = make_dialect(kPromptFields, read_completion);
  return dialect;
}

const ApiDialect& llama_infill_dialect() {
  static const ApiDialect dialect = make_dialect(kInfillFields, read_infill);
  return dialect;
}

}  // namespace zinc
