#include "engine/bench.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

TEST(Samples, the_median_is_the_middle_one_or_the_mean_of_two) {
  EXPECT_EQ((Samples{{5, 1, 3}}).median(), 3);
  EXPECT_EQ((Samples{{5, 1, 3, 4}}).median(), 3.5);
  EXPECT_EQ(Samples{}.median(), 0);
}

TEST(Samples, the_spread_is_relative_to_the_median) {
  EXPECT_EQ((Samples{{8, 10, 12}}).spread(), 0.4);
  EXPECT_EQ((Samples{{7}}).spread(), 0);
  EXPECT_EQ(Samples{}.spread(), 0);
}

TEST(Samples, the_quartile_spread_ignores_outliers) {
  EXPECT_EQ((Samples{{10, 10, 10, 11, 9, 10, 1000, 10}}).quartile_spread(), 0.1);
  EXPECT_EQ(Samples{}.quartile_spread(), 0);
}

TEST(BenchTest, is_named_as_llama_bench_names_it) {
  EXPECT_EQ((BenchTest{.n_prompt = 512}).name(), "pp512");
  EXPECT_EQ((BenchTest{.n_gen = 64, .depth = 4096}).name(), "tg64 @ d4096");
}

TEST(BenchScenario, decode_follows_the_prompt_and_no_scenario_is_too_short_to_measure) {
  for (const BenchScenario& scenario : bench_scenarios()) {
    const auto [prefill, decode] = scenario.tests();
    EXPECT_EQ(prefill.depth, 0);
    EXPECT_EQ(decode.depth, prefill.n_prompt);
    EXPECT_GE(prefill.n_prompt, 512) << scenario.name;
    EXPECT_GE(decode.n_gen, 128) << scenario.name;
  }
  EXPECT_EQ(bench_scenarios().size(), 4u);
}

}  // namespace
}  // namespace zinc
