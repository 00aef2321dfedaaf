#include "hub/sampling_advice.h"

#include <array>
#include <string>

#include "graph/sampling_params.h"

namespace zinc {
namespace {

struct FamilyAdvice {
  std::string_view name, also;  // both in the names of a file; the first row that fits counts
  SamplingAdvice advice;
};

// What the makers' model cards and generation_config.json say.
constexpr std::array kFamilies = {
    FamilyAdvice{"smollm3", "", {0.6f, 0, 0.95f, 0, 1, "SmolLM3's model card"}},
    FamilyAdvice{"smollm2", "", {0.2f, 0, 0.9f, 0, 1, "SmolLM2's model card"}},
    FamilyAdvice{"qwen3 ", "instruct 2507", {0.7f, 20, 0.8f, 0, 1, "Qwen3 Instruct's model card"}},
    FamilyAdvice{"qwen3 ", "", {0.6f, 20, 0.95f, 0, 1, "Qwen3's model card"}},
    FamilyAdvice{"qwen2.5 ", "", {0.7f, 20, 0.8f, 0, 1.05f, "Qwen2.5's generation_config.json"}},
    FamilyAdvice{"llama 3", "instruct", {0.6f, 0, 0.9f, 0, 1, "Llama 3's generation_config.json"}},
    FamilyAdvice{"gemma", "", {1, 64, 0.95f, 0, 1, "Gemma's model card"}},
    FamilyAdvice{"gpt oss", "", {1, 0, 1, 0, 1, "gpt-oss's model card"}},
};

// Lower case, words apart by blanks: one repository's "Qwen3-8B" is another's "Qwen3 8B".
std::string names_of(const GgufFile& file) {
  std::string names;
  for (const char* key : {"general.basename", "general.finetune", "general.name"}) {
    names += std::string(file.get_or<std::string_view>(key, "")) + " ";
  }
  for (char& c : names) c = c == '-' || c == '_' ? ' ' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return names;
}

// False: the file says nothing, or nothing that could be meant.
bool take_from_file(const GgufFile& file, SamplingAdvice& advice) {
  constexpr double kAbsent = -1;
  const double temperature = file.get_or<double>("general.sampling.temp", kAbsent);
  const int64_t top_k = file.get_or<int64_t>("general.sampling.top_k", 0);
  constexpr int32_t kAnyVocabulary = 1 << 30;
  if (temperature < 0 || top_k < 0 || top_k > kAnyVocabulary) return false;
  SamplingParams params;
  params.temperature = static_cast<float>(temperature);
  params.top_k = static_cast<int32_t>(top_k);
  params.top_p = static_cast<float>(file.get_or<double>("general.sampling.top_p", 1));
  params.min_p = static_cast<float>(file.get_or<double>("general.sampling.min_p", 0));
  params.repeat_penalty = static_cast<float>(file.get_or<double>("general.sampling.penalty_repeat", 1));
  if (!validate(params, kAnyVocabulary).ok()) return false;
  advice = {params.temperature, params.top_k, params.top_p, params.min_p, params.repeat_penalty, "the file's"};
  return true;
}

}  // namespace

SamplingAdvice sampling_advice(const GgufFile& file) {
  SamplingAdvice advice;
  if (take_from_file(file, advice)) return advice;
  const std::string names = names_of(file);
  for (const FamilyAdvice& family : kFamilies) {
    const bool fits = names.find(family.name) != std::string::npos && names.find(family.also) != std::string::npos;
    if (fits) return family.advice;
  }
  return advice;
}

}  // namespace zinc
