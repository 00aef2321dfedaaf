#include "cli/sampling_options.h"

#include <fmt/core.h>

#include <charconv>

#include "sample/rng.h"

namespace zinc {
namespace {

// A float as it was typed: 0.2, not 0.20000000298.
json::value number(float value) { return json::value(std::strtod(fmt::format("{}", value).c_str(), nullptr)); }

}  // namespace

// CLI11 would parse -1 and out-of-range numbers as 2^64-1.
std::string seed_error(const std::string& word) {
  uint64_t seed = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), seed);
  if (code == std::errc() && end == word.data() + word.size()) return {};
  return fmt::format("'{}' is not a valid seed; expected a whole number from 0 to 18446744073709551615", word);
}

SamplingParams SamplingOptions::resolve(const RecommendedSampling& recommended) const {
  SamplingParams out = params;
  out.temperature = temperature.value_or(recommended.temperature);
  out.top_k = top_k.value_or(recommended.top_k);
  out.top_p = top_p.value_or(recommended.top_p);
  out.min_p = min_p.value_or(recommended.min_p);
  out.repeat_penalty = repeat_penalty.value_or(recommended.repeat_penalty);
  out.presence_penalty = presence_penalty.value_or(recommended.presence_penalty);
  const bool is_greedy = out.temperature <= kGreedyTemperature;  // then only a penalty that is asked for
  out.dry_multiplier = dry_multiplier.value_or(is_greedy ? 0 : recommended.dry_multiplier);
  out.seed = seed ? *seed : random_seed() >> 11;  // exact in any language that reads it from JSON
  return out;
}

Status SamplingOptions::check() const { return validate(resolve({}), /*n_vocab=*/0); }

bool SamplingOptions::uses_recommended() const {
  if (temperature && *temperature <= kGreedyTemperature) return false;  // greedy: the other settings have no effect
  return !temperature || !top_k || !top_p || !min_p || !repeat_penalty || !presence_penalty || !dry_multiplier;
}

void declare_sampling_options(CLI::App& app, SamplingOptions& options) {
  SamplingParams& p = options.params;
  const auto add = [&app](const char* name, auto& target, const char* help) {
    return app.add_option(name, target, help)->group("Sampling (default: the model's recommended values)");
  };
  add("--temp,--temperature", options.temperature, "0: always the most likely token; higher: more random");
  add("--top-k", options.top_k, "keep the k most likely tokens (0: off)");
  add("--top-p", options.top_p, "keep the most likely tokens up to this cumulative probability (1: off)");
  add("--min-p", options.min_p, "drop tokens below this fraction of the highest probability (0: off)");
  add("--repeat-penalty", options.repeat_penalty, "penalize tokens already seen (1: off)");
  add("--presence-penalty", options.presence_penalty, "subtract once from the logit of tokens already seen (0: off)");
  add("--dry-multiplier", options.dry_multiplier, "DRY penalty on repeated token sequences (0: off)");
  add("--seed", options.seed, "random seed (default: a new one for each answer)")->check(seed_error, "");
  const auto add_more = [&app](const char* name, auto& target, const char* help) {
    app.add_option(name, target, help)->capture_default_str()->group("Advanced sampling");
  };
  add_more("--frequency-penalty", p.frequency_penalty, "subtract from the logit for each earlier occurrence (0: off)");
  add_more("--repeat-last-n", p.repeat_last_n, "number of recent tokens that these three penalties consider (-1: all)");
  add_more("--dry-base", p.dry_base, "growth of the DRY penalty with the sequence length");
  add_more("--dry-allowed-length", p.dry_allowed_length, "repeated sequences shorter than this are not penalized");
  add_more("--dry-last-n", p.dry_last_n, "number of recent tokens that DRY considers (-1: all)");
}

std::string sampling_text(const SamplingParams& p) {
  const std::string dry = p.dry_multiplier > 0 ? fmt::format(", dry-multiplier {}", p.dry_multiplier) : "";
  if (p.temperature == 0) return "temp 0 (greedy)" + dry;
  std::string text = fmt::format("temp {}", p.temperature);
  if (p.top_k > 0) text += fmt::format(", top-k {}", p.top_k);
  if (p.top_p < 1) text += fmt::format(", top-p {}", p.top_p);
  if (p.min_p > 0) text += fmt::format(", min-p {}", p.min_p);
  if (p.repeat_penalty != 1) text += fmt::format(", repeat-penalty {}", p.repeat_penalty);
  if (p.frequency_penalty != 0) text += fmt::format(", frequency-penalty {}", p.frequency_penalty);
  if (p.presence_penalty != 0) text += fmt::format(", presence-penalty {}", p.presence_penalty);
  return text + dry + fmt::format(", seed {}", p.seed);
}

json::object sampling_json(const SamplingParams& p) {
  return {{"temperature", number(p.temperature)},
          {"top_k", p.top_k},
          {"top_p", number(p.top_p)},
          {"min_p", number(p.min_p)},
          {"repeat_penalty", number(p.repeat_penalty)},
          {"frequency_penalty", number(p.frequency_penalty)},
          {"presence_penalty", number(p.presence_penalty)},
          {"dry_multiplier", number(p.dry_multiplier)},
          {"seed", p.seed}};
}

}  // namespace zinc
