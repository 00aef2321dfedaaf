#include "hub/recommended_sampling.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>

namespace zinc {
namespace {

enum class Mode : uint8_t { any, thinks, answers };  // thinking mode

struct FamilySampling {
  std::string_view name, also, excluded;  // must contain name and also, but not excluded
  Mode mode;
  RecommendedSampling sampling;  // temperature, top-k, top-p, min-p, repeat and presence penalty, origin, DRY
};

// The first matching row wins. If the mode is unset, any mode matches: the row of the family's default mode comes
// first.
constexpr std::array kFamilies = {
    FamilySampling{"smollm3", "", "", Mode::any, {0.6f, 0, 0.95f, 0, 1, 0, "SmolLM3's model card"}},
    // With the card's values 12 of 40 answers to newcomers' questions repeated a phrase without end, with DRY 1 of 40.
    FamilySampling{
        "smollm2", "135m", "", Mode::any, {0.2f, 0, 0.9f, 0, 1, 0, "SmolLM2's model card, DRY by zinc", 0.8f}},
    FamilySampling{"smollm2", "", "", Mode::any, {0.2f, 0, 0.9f, 0, 1, 0, "SmolLM2's model card"}},
    FamilySampling{"qwen3.6 ", "", "", Mode::thinks, {1, 20, 0.95f, 0, 1, 0, "Qwen3.6's model card"}},
    FamilySampling{
        "qwen3.6 ", "", "", Mode::answers, {0.7f, 20, 0.8f, 0, 1, 1.5f, "Qwen3.6's model card, no thinking"}},
    // The two smallest do not think by default.
    FamilySampling{
        "qwen3.5 ", " 0.8b", "", Mode::answers, {1, 20, 1, 0, 1, 2, "Qwen3.5 0.8B's model card, no thinking"}},
    FamilySampling{"qwen3.5 ", " 2b", "", Mode::answers, {1, 20, 1, 0, 1, 2, "Qwen3.5 2B's model card, no thinking"}},
    FamilySampling{"qwen3.5 ", "", "", Mode::thinks, {1, 20, 0.95f, 0, 1, 1.5f, "Qwen3.5's model card"}},
    FamilySampling{
        "qwen3.5 ", "", "", Mode::answers, {0.7f, 20, 0.8f, 0, 1, 1.5f, "Qwen3.5's model card, no thinking"}},
    FamilySampling{"qwen3 coder", "", "", Mode::any, {0.7f, 20, 0.8f, 0, 1.05f, 0, "Qwen3-Coder's model card"}},
    FamilySampling{"qwen3 ", "instruct", "", Mode::any, {0.7f, 20, 0.8f, 0, 1, 0, "Qwen3 Instruct's model card"}},
    FamilySampling{"qwen3 ", "", "base", Mode::thinks, {0.6f, 20, 0.95f, 0, 1, 0, "Qwen3's model card"}},
    FamilySampling{"qwen3 ", "", "base", Mode::answers, {0.7f, 20, 0.8f, 0, 1, 0, "Qwen3's model card, no thinking"}},
    FamilySampling{"qwen2.5 0.5b",
                   "instruct",
                   "",
                   Mode::any,
                   {0.7f, 20, 0.8f, 0, 1.1f, 0, "Qwen2.5 0.5B's generation_config.json"}},
    FamilySampling{"qwen2.5 1.5b",
                   "instruct",
                   "",
                   Mode::any,
                   {0.7f, 20, 0.8f, 0, 1.1f, 0, "Qwen2.5 1.5B's generation_config.json"}},
    FamilySampling{
        "qwen2.5 ", "instruct", " vl ", Mode::any, {0.7f, 20, 0.8f, 0, 1.05f, 0, "Qwen2.5's generation_config.json"}},
    FamilySampling{" llama 3", "instruct", "", Mode::any, {0.6f, 0, 0.9f, 0, 1, 0, "Llama 3's generation_config.json"}},
    FamilySampling{"architecture gemma3", "", "", Mode::any, {1, 64, 0.95f, 0, 1, 0, "Gemma 3's model card"}},
    FamilySampling{"architecture gemma4", "", "", Mode::any, {1, 64, 0.95f, 0, 1, 0, "Gemma 4's model card"}},
    FamilySampling{"gpt oss", "", "", Mode::any, {1, 0, 1, 0, 1, 0, "gpt-oss's model card"}},
};

// Lower case, with blanks for - and _: "Qwen3-8B" and "Qwen3 8B" are the same.
std::string names_of(const GgufFile& file) {
  std::string names = fmt::format("architecture {}; ", file.get_or<std::string_view>("general.architecture", ""));
  for (const char* key : {"general.basename", "general.size_label", "general.finetune", "general.name"}) {
    names += std::string(file.get_or<std::string_view>(key, "")) + " ";
  }
  for (char& c : names) c = c == '-' || c == '_' ? ' ' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return names;
}

// False: the file has no sampling keys, or invalid ones. Missing keys are neutral, as in generation_config.json.
bool read_from_file(const GgufFile& file, RecommendedSampling& sampling) {
  constexpr std::array kKeys = {"temp", "top_k", "top_p", "min_p", "penalty_repeat"};
  const bool has_sampling_keys = std::any_of(kKeys.begin(), kKeys.end(), [&](const char* key) {
    return file.find(fmt::format("general.sampling.{}", key)) != nullptr;
  });
  if (!has_sampling_keys) return false;
  constexpr double kInvalid = -1;  // not a number
  const auto number = [&](const char* key, double neutral) {
    const std::string name = fmt::format("general.sampling.{}", key);
    return static_cast<float>(file.find(name) ? file.get_or<double>(name, kInvalid) : neutral);
  };
  const int64_t top_k = file.get_or<int64_t>("general.sampling.top_k", 0);
  constexpr int32_t kAnyVocabulary = 1 << 30;
  if (top_k < 0 || top_k > kAnyVocabulary) return false;
  SamplingParams params;
  params.temperature = number("temp", 1);
  params.top_k = static_cast<int32_t>(top_k);
  params.top_p = number("top_p", 1);
  params.min_p = number("min_p", 0);
  params.repeat_penalty = number("penalty_repeat", 1);
  if (!validate(params, kAnyVocabulary).ok()) return false;
  sampling = {params.temperature, params.top_k, params.top_p, params.min_p, params.repeat_penalty, 0, "the file's", 0};
  return true;
}

const FamilySampling* find_family(const std::string& names, std::optional<bool> thinking) {
  const auto has = [&](std::string_view word) { return names.find(word) != std::string::npos; };
  for (const FamilySampling& family : kFamilies) {
    const bool matches_mode = !thinking || family.mode == Mode::any || (family.mode == Mode::thinks) == *thinking;
    const bool is_excluded = !family.excluded.empty() && has(family.excluded);
    if (matches_mode && has(family.name) && has(family.also) && !is_excluded) return &family;
  }
  return nullptr;
}

}  // namespace

RecommendedSampling recommended_sampling(const GgufFile& file, std::optional<bool> thinking) {
  const std::string names = names_of(file);
  const FamilySampling* const family = find_family(names, thinking);
  // The values in a file are for the model's default mode.
  const bool is_default_mode = family == find_family(names, std::nullopt);
  RecommendedSampling sampling;
  if (is_default_mode && read_from_file(file, sampling)) return sampling;
  return family ? family->sampling : sampling;
}

SamplingParams sampling_params(const RecommendedSampling& recommended) {
  return {.temperature = recommended.temperature,
          .top_k = recommended.top_k,
          .top_p = recommended.top_p,
          .min_p = recommended.min_p,
          .repeat_penalty = recommended.repeat_penalty,
          .presence_penalty = recommended.presence_penalty,
          .dry_multiplier = recommended.dry_multiplier};
}

}  // namespace zinc
