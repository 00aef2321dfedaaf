#include "cli/sampling_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "sample/rng.h"

namespace zinc {

// CLI11 would parse -1 and out-of-range numbers as 2^64-1.
std::string seed_error(const std::string& word) {
  uint64_t seed = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), seed);
  if (code == std::errc() && end == word.data() + word.size()) return {};
  return fmt::format("'{}' is not a valid seed; expected a whole number from 0 to 18446744073709551615", word);
}

SamplingParams SamplingOptions::resolve(const RecommendedSampling& recommended) const {
  SamplingParams out = sampling_params(recommended);
  for (const SamplingField& field : sampling_fields()) {
    if (given.contains(field.name)) copy_field(field, params, out);
  }
  const bool is_greedy = out.temperature <= kGreedyTemperature;  // then only a penalty that is asked for
  if (is_greedy && !given.contains("dry_multiplier")) out.dry_multiplier = 0;
  out.seed = seed ? *seed : random_seed() >> 11;  // exact in any language that reads it from JSON
  return out;
}

Status SamplingOptions::check() const { return validate(resolve({}), /*n_vocab=*/0); }

bool SamplingOptions::uses_recommended() const {
  // Greedy: the other settings have no effect.
  if (given.contains("temperature") && params.temperature <= kGreedyTemperature) return false;
  return std::ranges::any_of(sampling_fields(), [&](const SamplingField& field) {
    return field.is_recommended && !given.contains(field.name);
  });
}

void declare_sampling_options(CLI::App& app, SamplingOptions& options) {
  const auto option_of = [](std::string_view name) {
    std::string option = fmt::format("--{}", name);
    std::ranges::replace(option, '_', '-');
    return option;
  };
  for (const SamplingField& field : sampling_fields()) {
    const std::string names = (field.alias.empty() ? "" : option_of(field.alias) + ",") + option_of(field.name);
    const auto add = [&]<class T>(T SamplingParams::*member) {
      const auto set = [&options, &field, member](T value) {
        options.params.*member = value;
        options.given.insert(field.name);
      };
      CLI::Option* const option = app.add_option_function<T>(names, set, std::string(field.help));
      if (field.is_recommended) {
        option->group("Sampling (default: the model's recommended values)");
      } else {
        option->default_str(field_text(field, SamplingParams()))->group("Advanced sampling");
      }
    };
    std::visit(add, field.member);
  }
  app.add_option("--seed", options.seed, "random seed (default: a new one for each answer)")
      ->check(seed_error, "")
      ->group("Sampling (default: the model's recommended values)");
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

}  // namespace zinc
