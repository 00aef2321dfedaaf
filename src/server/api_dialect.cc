#include "server/api_dialect.h"

namespace zinc {
namespace {

json::object token_json(const LogprobToken& token, TokenIds ids) {
  json::array bytes;
  for (const char c : token.text) bytes.push_back(static_cast<unsigned char>(c));
  json::object out{{"token", token.text}, {"logprob", token.logprob}};
  if (ids == TokenIds::include) out["id"] = token.id;
  out["bytes"] = std::move(bytes);
  return out;
}

double per_second(int n, double seconds) { return seconds > 0 ? n / seconds : 0; }

}  // namespace

CompletionStreamWriter::CompletionStreamWriter(const CompletionObjectNames& names, ResponseMetadata metadata)
    : metadata_(std::move(metadata)) {
  event_prefix_ = fmt::format(R"(data: {{"id":"{}{}","object":"{}","created":{},"model":{},)", names.id_prefix,
                              metadata_.id, names.chunk_object, metadata_.created_s, quote_json(metadata_.model));
}

void CompletionStreamWriter::event(int choice, std::string_view choice_members, std::string_view extra_members,
                                   std::string& out) const {
  out += event_prefix_;
  out += fmt::format(R"("choices":[{{"index":{},{}}}]{}{})", choice, choice_members, extra_members,
                     metadata_.include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

void CompletionStreamWriter::end(const UsageTotal& usage, std::string& out) {
  if (metadata_.include_usage) {
    out += event_prefix_ + fmt::format("\"choices\":[],\"usage\":{}}}\n\n", to_json(usage_json(usage)));
  }
  out += "data: [DONE]\n\n";
}

void CompletionStreamWriter::error(const ApiError& error, std::string& out) {
  out += sse_data(error_body(error, ErrorFormat::openai));
}

json::object completion_object(const CompletionObjectNames& names, const ResponseMetadata& metadata,
                               json::array choices, const UsageTotal& usage, const Choice& first) {
  json::object out{{"id", std::string(names.id_prefix) + metadata.id},
                   {"object", names.object},
                   {"created", metadata.created_s},
                   {"model", metadata.model}};
  out["choices"] = std::move(choices);
  out["usage"] = usage_json(usage);
  out["timings"] = timings_json(first);
  return out;
}

std::string_view finish_reason(const Choice& choice) {
  if (choice.reason == StopReason::max_tokens || choice.reason == StopReason::context_full) return "length";
  return choice.calls_tools() ? "tool_calls" : "stop";
}

json::object usage_json(const UsageTotal& usage) {
  return {{"prompt_tokens", usage.n_prompt},
          {"completion_tokens", usage.n_completion},
          {"total_tokens", usage.n_prompt + usage.n_completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.n_cached}}},
          {"completion_tokens_details",
           {{"reasoning_tokens", usage.n_reasoning},
            {"accepted_prediction_tokens", usage.n_draft_accepted},
            {"rejected_prediction_tokens", usage.n_draft_rejected}}}};
}

json::object timings_json(const Choice& choice) {
  const Usage& usage = choice.usage;
  const Timings& timings = choice.timings;
  const int n_computed = usage.n_prompt - usage.n_cached;
  const int n_decoded = std::max(usage.n_completion - 1, 0);  // the first token comes from the last prefill step
  return {{"queued_ms", timings.queued_s * 1e3},
          {"cache_n", usage.n_cached},
          {"cache_miss", cache_miss_name(usage.miss)},
          {"first_new_token", usage.n_common},
          {"prompt_n", n_computed},
          {"prompt_ms", timings.prefill_s * 1e3},
          {"prompt_per_second", per_second(n_computed, timings.prefill_s)},
          {"predicted_n", usage.n_completion},
          {"predicted_ms", timings.decode_s * 1e3},
          {"predicted_per_second", per_second(n_decoded, timings.decode_s)}};
}

json::array warnings_json(const Choice& choice) {
  json::array out;
  for (const ParseWarning& warning : choice.message.warnings) {
    out.push_back({{"code", warning_name(warning.code)}, {"message", warning.message}});
  }
  for (const std::string& part : choice.unenforced) {
    out.push_back({{"code", "schema_not_enforced"}, {"message", part}});
  }
  return out;
}

json::array logprobs_json(std::span<const LogprobToken> tokens, TokenIds ids) {
  json::array out;
  for (const LogprobToken& token : tokens) {
    json::object entry = token_json(token, ids);
    json::array top;
    for (const LogprobToken& other : token.top) top.push_back(token_json(other, ids));
    entry["top_logprobs"] = std::move(top);
    out.push_back(std::move(entry));
  }
  return out;
}

std::string quote_json(std::string_view text) { return to_json(json::value(json::string(text))); }
std::string sse_data(const json::value& value) { return "data: " + to_json(value) + "\n\n"; }
std::string sse_event(std::string_view event, const json::value& value) {
  return fmt::format("event: {}\ndata: {}\n\n", event, to_json(value));
}

}  // namespace zinc
