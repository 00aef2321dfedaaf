// The CPU sampler with a vocabulary of 151,936 (Qwen). Target: under 200 us per token with top-k or min-p on one core.
// Two distributions of logits: "peaked" like a language model's (most tokens far below a few), "wide" a normal
// distribution, which truncation shortens little.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "sample/dry.h"
#include "sample/sampler.h"

namespace zinc {
namespace {

constexpr size_t kVocab = 151'936;

std::vector<float> peaked_logits() {
  std::mt19937 engine(7);
  std::normal_distribution<float> bulk(0.0f, 2.0f);
  std::exponential_distribution<float> top(0.5f);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = bulk(engine);
  for (int i = 0; i < 200; ++i) logits[engine() % kVocab] = 8.0f + top(engine);
  return logits;
}

std::vector<float> wide_logits() {
  std::mt19937 engine(7);
  std::normal_distribution<float> bulk(0.0f, 3.0f);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = bulk(engine);
  return logits;
}

std::vector<TokenId> text(size_t n_tokens) {  // skewed like words, so that short repetitions are frequent
  std::mt19937 engine(11);
  std::geometric_distribution<TokenId> word(0.01);
  std::vector<TokenId> tokens(n_tokens);
  for (TokenId& token : tokens) token = word(engine) % static_cast<TokenId>(kVocab);
  return tokens;
}

void sample(benchmark::State& state, std::vector<float> logits, const SamplingParams& params, size_t n_history = 0) {
  const std::vector<TokenId> history = text(n_history);
  Sampler sampler;
  uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.sample(logits, params, {.history = history, .position = position++}));
  }
}

SamplingParams full_chain() {
  SamplingParams params{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
  params.repeat_penalty = 1.1f;
  params.frequency_penalty = 0.1f;
  params.presence_penalty = 0.1f;
  params.repeat_last_n = kWholeHistory;
  params.dry_multiplier = 0.8f;
  return params;
}

BENCHMARK_CAPTURE(sample, greedy, peaked_logits(), {.temperature = 0.0f})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, top_k_40, peaked_logits(), {.top_k = 40})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, top_k_40_wide, wide_logits(), {.top_k = 40})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, min_p_005, peaked_logits(), {.min_p = 0.05f})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, min_p_005_wide, wide_logits(), {.min_p = 0.05f})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, top_p_095, peaked_logits(), {.top_p = 0.95f})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, top_p_095_wide, wide_logits(), {.top_p = 0.95f})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, temperature_only, peaked_logits(), {.temperature = 0.8f})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, full_chain_4k_history, peaked_logits(), full_chain(), 4096)->Unit(benchmark::kMicrosecond);

void logprobs(benchmark::State& state) {
  const std::vector<float> logits = peaked_logits();
  Sampler sampler;
  Logprobs out;
  for (auto _ : state) sampler.logprobs(logits, 1, 20, out);
}
BENCHMARK(logprobs)->Unit(benchmark::kMicrosecond);

void dry(benchmark::State& state, const std::vector<TokenId>& history) {
  TokenCounts longest;
  for (auto _ : state) {
    longest.reset(kVocab);
    find_repetitions(history, 2, TokenSet(), longest);
    benchmark::DoNotOptimize(longest.touched().data());
  }
}
BENCHMARK_CAPTURE(dry, text_64k, text(65'536))->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(dry, one_token_64k, std::vector<TokenId>(65'536, 5))->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace zinc
