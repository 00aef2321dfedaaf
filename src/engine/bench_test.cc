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

TEST(BenchTest, is_named_as_llama_bench_names_it) {
  EXPECT_EQ((BenchTest{.n_prompt = 512}).name(), "pp512");
  EXPECT_EQ((BenchTest{.n_gen = 64, .depth = 4096}).name(), "tg64 @ d4096");
}

}  // namespace
}  // namespace zinc
