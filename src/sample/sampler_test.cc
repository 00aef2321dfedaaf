#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "sample/rng.h"

namespace zinc {
namespace {

using Logits = std::vector<float>;
using Tokens = std::vector<TokenId>;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The sampler chain by its definition: a full sort in double precision. Returns the tokens that survive truncation, in
// order of id, with their probabilities after temperature.
std::vector<std::pair<TokenId, double>> naive_distribution(const Logits& logits, const SamplingParams& p) {
  struct Entry {
    TokenId token;
    double logit, probability;
  };
  std::vector<Entry> entries;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == -kInf) continue;
    entries.push_back({static_cast<TokenId>(i), std::min(logits[i], FLT_MAX), 0.0});
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
  if (p.top_k > 0 && entries.size() > static_cast<size_t>(p.top_k)) entries.resize(static_cast<size_t>(p.top_k));

  const auto softmax = [&](double temperature) {
    double sum = 0.0;
    const double max = entries[0].logit;
    for (Entry& e : entries) sum += e.probability = std::exp((e.logit - max) / temperature);
    for (Entry& e : entries) e.probability /= sum;
  };
  softmax(1.0);
  size_t n_kept = 0;
  for (double sum = 0.0; n_kept < entries.size() && (n_kept == 0 || sum < double{p.top_p});) {
    sum += entries[n_kept++].probability;
  }
  if (p.top_p < 1.0f) entries.resize(n_kept);
  softmax(1.0);
  const double smallest = p.min_p * entries[0].probability;
  std::erase_if(entries, [&](const Entry& e) { return e.probability < smallest; });
  softmax(p.temperature);

  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.token < b.token; });
  std::vector<std::pair<TokenId, double>> distribution;
  for (const Entry& e : entries) distribution.emplace_back(e.token, e.probability);
  return distribution;
}

TokenId naive_pick(const Logits& logits, const SamplingParams& p, uint64_t position) {
  const auto distribution = naive_distribution(logits, p);
  const double uniform = Rng(p.seed).uniform(position);
  double sum = 0.0;
  for (const auto& [token, probability] : distribution) {
    sum += probability;
    if (sum > uniform) return token;
  }
  return distribution.back().first;
}

TokenId sample(Logits logits, const SamplingParams& params, uint64_t position = 0, const Tokens& history = {}) {
  Sampler sampler;
  const auto token = sampler.sample(logits, params, {.history = history, .position = position});
  EXPECT_TRUE(token.ok());
  return token.value();
}

Logits log_of(std::vector<double> probabilities) {
  Logits logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

Logits random_logits(std::mt19937& engine) {
  constexpr size_t kSizes[] = {1, 2, 63, 64, 65, 129, 1000, 5000};
  Logits logits(kSizes[engine() % std::size(kSizes)]);
  std::normal_distribution<float> normal;
  const float spread = std::array{0.0f, 0.5f, 3.0f, 10.0f}[engine() % 4];
  const bool ties = engine() % 3 == 0;
  for (float& logit : logits) {
    logit = spread * normal(engine);
    if (ties) logit = std::round(logit);
  }
  if (engine() % 3 == 0) {  // masked logits, but never all
    for (size_t i = 1; i < logits.size(); i += 1 + engine() % 5) logits[i] = engine() % 2 ? kNan : -kInf;
  }
  return logits;
}

SamplingParams random_cuts(std::mt19937& engine) {
  SamplingParams p;
  p.temperature = std::array{0.3f, 0.7f, 1.0f, 1.4f, 2.0f}[engine() % 5];
  p.top_k = std::array{0, 0, 1, 2, 40, 100, 3000, 100'000}[engine() % 8];
  p.top_p = std::array{1.0f, 1.0f, 0.0f, 0.3f, 0.8f, 0.95f, 0.999f}[engine() % 7];
  p.min_p = std::array{0.0f, 0.0f, 0.001f, 0.05f, 0.3f, 1.0f}[engine() % 6];
  p.seed = engine();
  return p;
}

TEST(Sampler, equals_a_full_sort_for_every_combination_of_truncations) {
  std::mt19937 engine(1);
  Sampler sampler;
  for (int round = 0; round < 4000; ++round) {
    Logits logits = random_logits(engine);
    const SamplingParams params = random_cuts(engine);
    const uint64_t position = engine();
    const auto token = sampler.sample(logits, params, {.position = position});
    ASSERT_TRUE(token.ok());
    ASSERT_EQ(token.value(), naive_pick(logits, params, position))
        << "round " << round << ": " << logits.size() << " logits, T " << params.temperature << ", top_k "
        << params.top_k << ", top_p " << params.top_p << ", min_p " << params.min_p;
  }
}

// 99.9th percentile of chi-square (Wilson and Hilferty).
double chi2_limit(double n_degrees) {
  const double a = 2.0 / (9.0 * n_degrees);
  return n_degrees * std::pow(1.0 - a + 3.09 * std::sqrt(a), 3.0);
}

void expect_distribution(const Logits& logits, const SamplingParams& params, const char* name) {
  constexpr int kDraws = 100'000;
  const auto distribution = naive_distribution(logits, params);
  std::vector<int> n_sampled(logits.size());
  Sampler sampler;
  Logits work = logits;
  for (uint64_t i = 0; i < kDraws; ++i) {
    ++n_sampled[static_cast<size_t>(sampler.sample(work, params, {.position = i}).value())];
  }
  double chi2 = 0.0, rare_expected = 0.0;
  int n_cells = 0, n_rare = 0, n_seen = 0;
  for (const auto& [token, probability] : distribution) {
    const double expected = probability * kDraws;
    const int n = n_sampled[static_cast<size_t>(token)];
    n_seen += n;
    if (expected < 10.0) {
      rare_expected += expected;
      n_rare += n;
      continue;
    }
    chi2 += (n - expected) * (n - expected) / expected;
    ++n_cells;
  }
  if (rare_expected >= 10.0) {
    chi2 += (n_rare - rare_expected) * (n_rare - rare_expected) / rare_expected;
    ++n_cells;
  }
  EXPECT_EQ(n_seen, kDraws) << name << ": truncated tokens were sampled";
  ASSERT_GT(n_cells, 1) << name;
  EXPECT_LT(chi2, chi2_limit(n_cells - 1)) << name;
}

TEST(Sampler, a_hundred_thousand_samples_follow_the_exact_distribution) {
  std::mt19937 engine(5);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  Logits logits(200);
  for (float& logit : logits) logit = normal(engine);
  expect_distribution(logits, {.temperature = 1.0f}, "plain");
  expect_distribution(logits, {.temperature = 0.5f}, "cold");
  expect_distribution(logits, {.temperature = 1.4f}, "warm");
  expect_distribution(logits, {.temperature = 2.0f, .top_k = 10}, "top-k");
  expect_distribution(logits, {.temperature = 1.0f, .top_p = 0.8f}, "top-p");
  expect_distribution(logits, {.temperature = 1.4f, .min_p = 0.05f}, "min-p");
  expect_distribution(logits, {.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f}, "all truncations");
  expect_distribution(logits, {.temperature = 1.0f, .seed = 99}, "another seed");
}

// A token with 8 % of the most likely token's probability has 16 % of it after T = 1.4: it survives min-p 0.1 only if
// temperature comes first.
TEST(Sampler, temperature_comes_after_min_p) {
  const Logits logits = log_of({0.5, 0.46, 0.04});
  int n_second = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    const TokenId token = sample(logits, {.temperature = 1.4f, .min_p = 0.1f}, i);
    ASSERT_NE(token, 2);
    n_second += token == 1;
  }
  const double ratio = std::pow(0.46 / 0.5, 1 / 1.4);  // and it is sampled
  EXPECT_NEAR(n_second / 20'000.0, ratio / (1 + ratio), 0.014);
}

TEST(Sampler, temperature_comes_after_top_p) {
  const Logits logits = log_of({0.7, 0.15, 0.1, 0.05});  // at T = 1.4 the first two have only 0.78
  for (uint64_t i = 0; i < 20'000; ++i) ASSERT_LE(sample(logits, {.temperature = 1.4f, .top_p = 0.84f}, i), 1);
}

TEST(Sampler, top_p_sees_the_distribution_that_top_k_left) {
  const Logits logits = log_of({0.4, 0.2, 0.1, 0.1, 0.1, 0.1});  // of the first two, the first has 0.67
  for (uint64_t i = 0; i < 5000; ++i) ASSERT_EQ(sample(logits, {.top_k = 2, .top_p = 0.6f}, i), 0);
}

// The example of the min-p literature: p_max 0.20 puts the cutoff at 0.010.
TEST(Sampler, min_p_keeps_6_tokens_where_top_p_keeps_41) {
  std::vector<double> probabilities = {0.20, 0.16, 0.12, 0.09, 0.07, 0.05};
  probabilities.insert(probabilities.end(), 35, 0.0075);
  probabilities.insert(probabilities.end(), 9, 0.005);
  probabilities.push_back(0.0025);
  ASSERT_NEAR(std::accumulate(probabilities.begin(), probabilities.end(), 0.0), 1.0, 1e-9);
  const auto n_distinct = [&](const SamplingParams& params) {
    std::vector<bool> seen(probabilities.size());
    for (uint64_t i = 0; i < 10'000; ++i) seen[static_cast<size_t>(sample(log_of(probabilities), params, i))] = true;
    return std::count(seen.begin(), seen.end(), true);
  };
  EXPECT_EQ(n_distinct({.min_p = 0.05f}), 6);
  EXPECT_EQ(n_distinct({.top_p = 0.95f}), 41);
}

TEST(Sampler, greedy_takes_the_lowest_id_on_ties) {
  Logits logits(300, 1.0f);
  EXPECT_EQ(sample(logits, {.temperature = 0.0f}), 0);
  logits[130] = logits[131] = logits[257] = 2.0f;
  for (const float temperature : {0.0f, 1e-5f, kGreedyTemperature}) {
    EXPECT_EQ(sample(logits, {.temperature = temperature}), 130);
  }
  logits[299] = 3.0f;  // in the last, partial block
  EXPECT_EQ(sample(logits, {.temperature = 0.0f}), 299);
}

TEST(Sampler, top_k_keeps_the_lowest_ids_of_equal_logits) {
  for (uint64_t i = 0; i < 500; ++i) EXPECT_LT(sample(Logits(1000, 0.5f), {.top_k = 3}, i), 3);
}

TEST(Sampler, greedy_sees_bias_penalties_and_dry) {
  const Logits logits = {0.0f, 1.0f, 2.0f, 1.5f};
  SamplingParams biased{.temperature = 0.0f};
  biased.logit_bias = {{0, 5.0f}};
  EXPECT_EQ(sample(logits, biased), 0);
  EXPECT_EQ(sample(logits, {.temperature = 0.0f, .presence_penalty = 1.0f}, 0, {2}), 3);
  EXPECT_EQ(sample(logits, {.temperature = 0.0f, .dry_multiplier = 0.8f}, 0, {0, 1, 2, 3, 0, 1}), 3);
}

TEST(Sampler, dry_breaks_a_forced_loop) {
  constexpr TokenId kCycle = 4;  // a model that only ever wants 0 1 2 3 0 1 2 3 ...; 9 comes second
  Sampler sampler;
  const auto generate = [&](const SamplingParams& params) {
    Tokens history = {0};
    for (int step = 0; step < 60; ++step) {
      Logits logits(10, -20.0f);
      logits[static_cast<size_t>(history.back() < kCycle ? (history.back() + 1) % kCycle : 0)] = 10.0f;
      logits[9] = 2.0f;
      history.push_back(sampler.sample(logits, params, {.history = history}).value());
    }
    return std::count(history.begin(), history.end(), 9);
  };
  EXPECT_EQ(generate({.temperature = 0.0f}), 0);
  EXPECT_GT(generate({.temperature = 0.0f, .dry_multiplier = 0.8f}), 3);
}

Tokens generate(Sampler& sampler, const Logits& logits, const SamplingParams& params, uint64_t stream = 0) {
  Tokens tokens;
  Logits work = logits;
  for (uint64_t i = 0; i < 50; ++i) {
    tokens.push_back(sampler.sample(work, params, {.history = tokens, .position = i, .stream = stream}).value());
  }
  return tokens;
}

TEST(Sampler, the_same_seed_gives_the_same_tokens_and_another_does_not) {
  const Logits logits(500, 0.0f);
  Sampler sampler;
  const Tokens first = generate(sampler, logits, {.seed = 1});
  EXPECT_EQ(generate(sampler, logits, {.seed = 1}), first);
  EXPECT_NE(generate(sampler, logits, {.seed = 2}), first);
  EXPECT_NE(generate(sampler, logits, {.seed = 1}, 1), first);
}

TEST(Sampler, tokens_do_not_depend_on_how_calls_are_grouped) {
  std::mt19937 engine(9);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  Logits logits(700);
  for (float& logit : logits) logit = normal(engine);
  SamplingParams params[3] = {
      {.top_k = 20, .seed = 1}, {.top_p = 0.9f, .frequency_penalty = 0.5f, .seed = 2}, {.seed = 3}};
  params[2].dry_multiplier = 0.8f;
  Tokens alone[3], together[3];
  for (int r = 0; r < 3; ++r) {
    Sampler own;
    alone[r] = generate(own, logits, params[r]);
  }
  Sampler shared;
  for (uint64_t i = 0; i < 50; ++i) {
    for (int r = 2; r >= 0; --r) {
      together[r].push_back(shared.sample(logits, params[r], {.history = together[r], .position = i}).value());
    }
  }
  for (int r = 0; r < 3; ++r) EXPECT_EQ(together[r], alone[r]);
}

TEST(Sampler, vocabularies_of_different_size_can_share_a_sampler) {
  Sampler sampler;
  const SamplingParams params{.top_k = 5, .frequency_penalty = 1.0f};
  const Tokens history = {0, 900, 3};
  for (const size_t n_vocab : {size_t{1000}, size_t{1}, size_t{70}, size_t{5000}}) {
    Logits logits(n_vocab, 0.0f);
    const auto token = sampler.sample(logits, params, {.history = history});
    ASSERT_TRUE(token.ok());
    EXPECT_LT(static_cast<size_t>(token.value()), n_vocab);
  }
}

const SamplingParams kManyParams[] = {{.temperature = 0.0f},
                                      {},
                                      {.top_k = 3},
                                      {.top_k = 100},
                                      {.top_p = 0.9f},
                                      {.top_p = 0.0f},
                                      {.min_p = 0.1f},
                                      {.min_p = 1.0f},
                                      {.top_k = 2, .top_p = 0.5f, .min_p = 0.2f}};

TEST(Sampler, nan_and_minus_infinity_are_never_sampled) {
  Logits logits(200, kNan);
  for (size_t i = 0; i < logits.size(); i += 2) logits[i] = -kInf;
  logits[77] = -3e38f;
  for (const SamplingParams& params : kManyParams) {
    for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(sample(logits, params, i), 77);
  }
}

TEST(Sampler, logits_that_are_all_nan_are_not_the_requests_fault) {
  Logits logits(200, kNan);
  const Result<TokenId> sampled = Sampler().sample(logits, {}, {});
  ASSERT_FALSE(sampled.ok());
  EXPECT_EQ(sampled.error().code, ErrorCode::device_lost);
}

TEST(Sampler, plus_infinity_takes_all_probability_split_among_its_tokens) {
  Logits logits(200, 5.0f);
  logits[3] = logits[150] = kInf;
  logits[4] = kNan;
  for (const SamplingParams& params : kManyParams) {
    int n_first = 0, n_second = 0;
    for (uint64_t i = 0; i < 100; ++i) {
      const TokenId token = sample(logits, params, i);
      n_first += token == 3;
      n_second += token == 150;
    }
    EXPECT_EQ(n_first + n_second, 100);
    EXPECT_GT(n_first, 20);
  }
}

TEST(Sampler, the_extremes_of_float_do_not_overflow) {
  const Logits logits = {-FLT_MAX, FLT_MAX, -FLT_MAX, 0.0f};
  for (const SamplingParams& params : kManyParams) EXPECT_EQ(sample(logits, params), 1);
}

TEST(Sampler, a_vocabulary_of_one_samples_its_token) {
  for (const SamplingParams& params : kManyParams) EXPECT_EQ(sample({-7.0f}, params), 0);
}

TEST(Sampler, no_usable_logit_is_an_error_not_a_token) {
  Sampler sampler;
  for (const SamplingParams& params : kManyParams) {
    for (Logits logits : {Logits{}, Logits{kNan}, Logits(100, -kInf), Logits(100, kNan)}) {
      const auto token = sampler.sample(logits, params, {.position = 12});
      ASSERT_FALSE(token.ok());
      EXPECT_NE(token.error().message.find("position 12"), std::string::npos);
    }
  }
}

TEST(Sampler, logits_are_restored_when_sample_returns) {
  Logits logits = {1.0f, 2.0f, kNan, 3.0f, kInf};
  const Logits before = logits;
  SamplingParams params{.top_k = 2, .repeat_penalty = 1.5f, .presence_penalty = 0.3f, .dry_multiplier = 1.0f};
  params.logit_bias = {{0, 100.0f}};
  const Tokens history = {0, 1, 3, 0, 1};
  ASSERT_TRUE(Sampler().sample(logits, params, {.history = history}).ok());
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(logits[i]), std::bit_cast<uint32_t>(before[i])) << i;
  }
}

TEST(Sampler, logprobs_are_the_log_softmax_of_the_logits) {
  std::mt19937 engine(2);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  Logits logits(3000);
  for (float& logit : logits) logit = normal(engine);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit});
  std::vector<TokenLogprob> expected;
  for (size_t i = 0; i < logits.size(); ++i) {
    expected.push_back({static_cast<TokenId>(i), static_cast<float>(logits[i] - std::log(sum))});
  }
  Sampler sampler;
  Logprobs out;
  sampler.logprobs(logits, 1234, 20, out);
  EXPECT_NEAR(out.chosen, expected[1234].logprob, 1e-5);
  std::sort(expected.begin(), expected.end(), [](auto& a, auto& b) { return a.logprob > b.logprob; });
  ASSERT_EQ(out.top.size(), 20u);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(out.top[i].token, expected[i].token);
    EXPECT_NEAR(out.top[i].logprob, expected[i].logprob, 1e-5);
  }
}

TEST(Sampler, logprobs_handle_masked_logits_ties_and_more_alternatives_than_tokens) {
  Sampler sampler;
  Logprobs out;
  sampler.logprobs(Logits{kNan, 1.0f, -kInf, 1.0f}, 0, 20, out);
  EXPECT_EQ(out.chosen, -kInf);
  ASSERT_EQ(out.top.size(), 2u);
  EXPECT_EQ(out.top[0].token, 1);
  EXPECT_NEAR(out.top[1].logprob, std::log(0.5), 1e-6);
  sampler.logprobs(Logits{kInf, 1.0f}, 0, 0, out);
  EXPECT_NEAR(out.chosen, 0.0, 1e-6);
  EXPECT_TRUE(out.top.empty());
  sampler.logprobs(Logits{kNan, kNan}, 1, 5, out);
  EXPECT_EQ(out.chosen, -kInf);
  EXPECT_TRUE(out.top.empty());
}

TEST(Sampler, samples_allowed_tokens_as_if_there_were_no_others) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 3);
  Sampler sampler;
  for (const size_t n_vocab : {1u, 63u, 64u, 65u, 1000u, 5003u}) {
    Logits logits(n_vocab), left(n_vocab, -kInf);
    TokenSet allowed(n_vocab);
    for (size_t i = 0; i < n_vocab; ++i) {
      logits[i] = normal(random);
      if (random() % 3 != 0 && i != n_vocab - 1) continue;
      allowed.insert(static_cast<TokenId>(i));
      left[i] = logits[i];
    }
    const Logits before = logits;
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const SamplingParams params{.temperature = seed % 5 == 0 ? 0.0f : 1.2f,
                                  .top_k = static_cast<int>(seed % 3 * 20),
                                  .top_p = seed % 2 == 0 ? 1.0f : 0.8f,
                                  .seed = seed};
      const TokenId sampled = sampler.sample(logits, params, {.allowed = &allowed}).value();
      EXPECT_EQ(sampled, sampler.sample(left, params, {}).value());
      EXPECT_TRUE(allowed.contains(sampled));
      EXPECT_EQ(logits, before);
    }
  }
  Logits logits(10, 1.0f);
  const TokenSet none(10);
  EXPECT_FALSE(sampler.sample(logits, {}, {.allowed = &none}).ok());
}

}  // namespace
}  // namespace zinc
