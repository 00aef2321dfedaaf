#include "server/llama_routes.h"

namespace zinc {
namespace {

json::object slot_settings() {
  const SamplingParams p;
  return {{"n_predict", -1},
          {"temperature", p.temperature},
          {"top_k", p.top_k},
          {"top_p", p.top_p},
          {"min_p", p.min_p},
          {"repeat_penalty", p.repeat_penalty},
          {"repeat_last_n", p.repeat_last_n},
          {"presence_penalty", p.presence_penalty},
          {"frequency_penalty", p.frequency_penalty}};
}

std::string token_text(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.bytes(*id)) : "";
}

}  // namespace

void add_llama_props(const ServedModel& model, json::object& out) {
  const json::value* file = model.facts.if_contains("file");
  const json::value* sampling = model.facts.if_contains("recommended_sampling");
  out["default_generation_settings"] = {
      {"id", 0},
      {"n_ctx", model.limits.context},
      {"params", sampling && sampling->is_object() ? *sampling : json::value(slot_settings())}};
  out["total_slots"] = model.limits.max_sequences;
  out["model_alias"] = model.name;
  out["model_path"] = file ? *file : json::value(model.name);
  out["chat_template"] = model.prompt.chat_template().source();
  out["bos_token"] = token_text(model.tokenizer, model.tokenizer.bos());
  out["eos_token"] = token_text(model.tokenizer, model.tokenizer.eos());
  out["modalities"] = {{"vision", false}, {"audio", false}};
}

json::array llama_slots(const ModelList& models) {
  json::array out;
  for (const ModelRef& model : models.all()) {
    const EngineStats stats = model->engine->stats();
    const int n_busy = stats.n_prefilling + stats.n_decoding;
    for (int i = 0; i < model->limits.max_sequences; ++i) {
      out.push_back({{"id", out.size()},
                     {"model", model->name},
                     {"n_ctx", model->limits.context},
                     {"speculative", false},
                     {"is_processing", i < n_busy}});
    }
  }
  return out;
}

}  // namespace zinc
