#include "graph/sampling_fields.h"

#include <fmt/core.h>

#include <cstdlib>
#include <limits>

namespace zinc {
namespace {

constexpr double kMaxRepeatPenalty = 100;  // far beyond any use; keeps logits finite
constexpr double kMinRepeatPenalty = 0.01;
constexpr double kMaxDryMultiplier = 1000;
constexpr double kMaxDryBase = 100;
constexpr double kNoLimit = std::numeric_limits<int32_t>::max();

constexpr bool kRecommended = true, kFixed = false;

constexpr SamplingField kFields[] = {
    {"temperature", "temp", &SamplingParams::temperature, 0, kMaxTemperature, kRecommended,
     "0: always the most likely token; higher: more random"},
    {"top_k", "", &SamplingParams::top_k, 0, kNoLimit, kRecommended, "keep the k most likely tokens (0: off)",
     "0 turns it off"},
    {"top_p", "", &SamplingParams::top_p, 0, 1, kRecommended,
     "keep the most likely tokens up to this cumulative probability (1: off)"},
    {"min_p", "", &SamplingParams::min_p, 0, 1, kRecommended,
     "drop tokens below this fraction of the highest probability (0: off)"},
    {"repeat_penalty", "", &SamplingParams::repeat_penalty, kMinRepeatPenalty, kMaxRepeatPenalty, kRecommended,
     "divide the logits of tokens already seen (1: off)"},
    {"presence_penalty", "", &SamplingParams::presence_penalty, -kMaxCountPenalty, kMaxCountPenalty, kRecommended,
     "subtract once from the logit of tokens already seen (0: off)"},
    {"dry_multiplier", "", &SamplingParams::dry_multiplier, 0, kMaxDryMultiplier, kRecommended,
     "DRY penalty on repeated token sequences (0: off)"},
    {"frequency_penalty", "", &SamplingParams::frequency_penalty, -kMaxCountPenalty, kMaxCountPenalty, kFixed,
     "subtract from the logit for each earlier occurrence (0: off)"},
    {"repeat_last_n", "", &SamplingParams::repeat_last_n, kWholeHistory, kNoLimit, kFixed,
     "number of recent tokens, prompt included, for the repeat, presence and frequency penalties (-1: all)",
     "0 turns the penalties off, -1 means the whole history"},
    {"dry_base", "", &SamplingParams::dry_base, 1, kMaxDryBase, kFixed,
     "growth of the DRY penalty with the sequence length"},
    {"dry_allowed_length", "", &SamplingParams::dry_allowed_length, 1, kMaxDryMatch, kFixed,
     "repeated sequences shorter than this are not penalized", "shorter repetitions are not penalized"},
    {"dry_last_n", "", &SamplingParams::dry_last_n, kWholeHistory, kNoLimit, kFixed,
     "number of recent tokens that DRY considers (-1: all)", "0 turns DRY off, -1 means the whole history"},
};

// A float as it was typed: 0.2, not 0.20000000298.
json::value number(float value) { return json::value(std::strtod(fmt::format("{}", value).c_str(), nullptr)); }
json::value number(int32_t value) { return value; }

}  // namespace

std::span<const SamplingField> sampling_fields() { return kFields; }

void copy_field(const SamplingField& field, const SamplingParams& from, SamplingParams& to) {
  std::visit([&](auto member) { to.*member = from.*member; }, field.member);
}

std::string field_text(const SamplingField& field, const SamplingParams& params) {
  return std::visit([&](auto member) { return fmt::format("{}", params.*member); }, field.member);
}

json::object sampling_json(const SamplingParams& params) {
  json::object out;
  for (const SamplingField& field : sampling_fields()) {
    if (!field.is_recommended && field.name != "frequency_penalty") continue;
    std::visit([&](auto member) { out[field.name] = number(params.*member); }, field.member);
  }
  return out;
}

std::string range_text(const SamplingField& field) {
  return field.high == kNoLimit ? fmt::format("{} or more", field.low) : fmt::format("{} to {}", field.low, field.high);
}

}  // namespace zinc
