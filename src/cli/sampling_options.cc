#include "cli/sampling_options.h"

#include <fmt/core.h>

#include <charconv>

#include "sample/rng.h"

namespace zinc {
namespace {

// CLI11 would take -1 and numbers past the last one for 2^64-1.
std::string seed_text(const std::string& word) {
  uint64_t seed = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), seed);
  if (code == std::errc() && end == word.data() + word.size()) return {};
  return fmt::format("'{}' is no seed; expected a whole number from 0 to 18446744073709551615", word);
}

}  // namespace

void SamplingOptions::settle_seed() { params.seed = seed ? *seed : fresh_seed(); }

void declare_sampling_options(CLI::App& app, SamplingOptions& options) {
  SamplingParams& p = options.params;
  const auto add = [&app](const char* name, auto& target, const char* help) {
    app.add_option(name, target, help)->capture_default_str()->group("Sampling");
  };
  add("--temp,--temperature", p.temperature, "0: always the most likely token");
  add("--top-k", p.top_k, "keep the k most likely tokens (0: off)");
  add("--top-p", p.top_p, "keep the most likely tokens with this probability together (1: off)");
  add("--min-p", p.min_p, "keep tokens with this share of the best one's probability (0: off)");
  add("--repeat-penalty", p.repeat_penalty, "weaken tokens already seen (1: off)");
  add("--frequency-penalty", p.frequency_penalty, "subtracted for each time a token was seen (0: off)");
  add("--presence-penalty", p.presence_penalty, "subtracted once if a token was seen (0: off)");
  add("--repeat-last-n", p.repeat_last_n, "how far back these three look (-1: everything)");
  add("--dry-multiplier", p.dry_multiplier, "strength against repeated runs of tokens (0: off)");
  add("--dry-base", p.dry_base, "growth of that penalty with the run's length");
  add("--dry-allowed-length", p.dry_allowed_length, "runs up to this length cost nothing");
  add("--dry-last-n", p.dry_last_n, "how far back DRY looks (-1: everything)");
  app.add_option("--seed", options.seed, "of the random draws (default: a new one each time)")
      ->check(seed_text)
      ->group("Sampling");
}

}  // namespace zinc
