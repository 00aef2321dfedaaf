#include "sample/penalties.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

namespace zinc {
namespace {

using Logits = std::vector<float>;
using Tokens = std::vector<TokenId>;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Logits penalized(Logits logits, const SamplingParams& params, const Tokens& history, const TokenSet& breakers = {}) {
  PenaltyScratch scratch;
  const PenalizedLogits changed(logits, params, history, breakers, scratch);
  return Logits(logits);  // a copy, made before `changed` restores the logits
}

TEST(Penalties, repetition_divides_positive_and_multiplies_negative_logits) {
  const SamplingParams params{.repeat_penalty = 1.25f};
  EXPECT_EQ(penalized({2.0f, -2.0f, 0.0f, 3.0f}, params, {0, 1, 2, 0}), (Logits{1.6f, -2.5f, 0.0f, 3.0f}));
}

TEST(Penalties, frequency_counts_occurrences_and_presence_counts_once) {
  EXPECT_EQ(penalized({1.0f, 1.0f, 1.0f}, {.frequency_penalty = 0.5f}, {0, 1, 0, 0}), (Logits{-0.5f, 0.5f, 1.0f}));
  EXPECT_EQ(penalized({1.0f, 1.0f, 1.0f}, {.presence_penalty = 0.5f}, {0, 1, 0, 0}), (Logits{0.5f, 0.5f, 1.0f}));
  EXPECT_EQ(penalized({1.0f, 1.0f}, {.frequency_penalty = -1.0f}, {1, 1}), (Logits{1.0f, 3.0f}));
}

TEST(Penalties, repetition_comes_before_frequency_and_presence) {
  const SamplingParams params{.repeat_penalty = 2.0f, .frequency_penalty = 0.25f, .presence_penalty = 1.0f};
  EXPECT_EQ(penalized({4.0f, 4.0f}, params, {0, 0}), (Logits{4.0f / 2.0f - 2 * 0.25f - 1.0f, 4.0f}));
}

TEST(Penalties, see_only_the_newest_tokens_of_the_window) {
  SamplingParams params{.presence_penalty = 1.0f};
  const Tokens history = {0, 1, 2};
  const auto with_window = [&](int32_t n) {
    params.repeat_last_n = n;
    return penalized({0.0f, 0.0f, 0.0f}, params, history);
  };
  EXPECT_EQ(with_window(2), (Logits{0.0f, -1.0f, -1.0f}));
  EXPECT_EQ(with_window(0), (Logits{0.0f, 0.0f, 0.0f}));
  EXPECT_EQ(with_window(kWholeHistory), (Logits{-1.0f, -1.0f, -1.0f}));
  EXPECT_EQ(with_window(1000), (Logits{-1.0f, -1.0f, -1.0f}));
}

TEST(Penalties, defaults_change_nothing) {
  EXPECT_EQ(penalized({1.0f, -2.0f, 3.0f}, {}, {0, 1, 2, 0, 1, 2, 0, 1, 2}), (Logits{1.0f, -2.0f, 3.0f}));
}

TEST(Penalties, biases_are_added_first_and_add_up) {
  SamplingParams params{.repeat_penalty = 2.0f};
  params.logit_bias = {{0, 3.0f}, {0, 1.0f}, {1, -0.5f}};
  EXPECT_EQ(penalized({-2.0f, 1.0f}, params, {0}), (Logits{(-2.0f + 4.0f) / 2.0f, 0.5f}));
}

TEST(Penalties, dry_subtracts_its_penalty_from_the_token_that_would_continue) {
  const SamplingParams params{.dry_multiplier = 0.8f};
  const Tokens history = {1, 2, 3, 4, 0, 1, 2, 3};  // 4 would make it 1 2 3 4 again: n = 3
  const Logits changed = penalized(Logits(6, 1.0f), params, history);
  EXPECT_FLOAT_EQ(changed[4], 1.0f - 0.8f * 1.75f);
  EXPECT_EQ((Logits{changed[0], changed[1], changed[2], changed[3], changed[5]}), Logits(5, 1.0f));

  SamplingParams short_sight = params;
  short_sight.dry_last_n = 4;
  EXPECT_EQ(penalized(Logits(6, 1.0f), short_sight, history), Logits(6, 1.0f));
}

TEST(Penalties, tokens_outside_the_vocabulary_are_ignored) {
  const SamplingParams params{.presence_penalty = 1.0f};
  EXPECT_EQ(penalized({0.0f, 0.0f}, params, {-1, 2, 1 << 30, std::numeric_limits<TokenId>::min(), 1}),
            (Logits{0.0f, -1.0f}));
}

TEST(Penalties, finite_logits_stay_finite_and_others_stay_as_they_are) {
  SamplingParams params{.repeat_penalty = 0.01f, .dry_multiplier = 1000.0f};
  params.dry_base = 100.0f;
  params.repeat_last_n = kWholeHistory;
  const Logits changed = penalized({3e38f, -FLT_MAX, kInf, -kInf, kNan}, params, Tokens(200, 1));
  EXPECT_EQ(changed[1], -FLT_MAX);
  EXPECT_EQ(penalized({3e38f}, params, Tokens(1, 0))[0], FLT_MAX);
  EXPECT_EQ(changed[2], kInf);
  EXPECT_EQ(changed[3], -kInf);
  EXPECT_TRUE(std::isnan(changed[4]));
}

TEST(Penalties, logits_are_restored_bit_for_bit) {
  Logits logits = {1.0f, kNan, -kInf, kInf, -0.0f, 0.3f};
  const Logits before = logits;
  SamplingParams params{.repeat_penalty = 1.3f, .frequency_penalty = 0.7f, .dry_multiplier = 0.8f};
  params.logit_bias = {{0, 5.0f}, {0, -1.0f}, {1, 3.0f}, {4, 1.0f}};
  PenaltyScratch scratch;
  const Tokens history = {0, 1, 5, 4, 0, 1, 5, 4, 0, 1, 5};
  {
    const PenalizedLogits changed(logits, params, history, TokenSet(), scratch);
    EXPECT_NE(logits[0], before[0]);
    EXPECT_NE(logits[4], before[4]);
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(logits[i]), std::bit_cast<uint32_t>(before[i])) << i;
  }
}

}  // namespace
}  // namespace zinc
