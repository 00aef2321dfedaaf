#include "graph/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace zinc {
namespace {

TEST(RopeFrequencies, fall_geometrically_from_one) {
  const std::vector<double> f = rope_frequencies({.n_dims = 8, .theta = 10000}, {});
  ASSERT_EQ(f.size(), 4u);
  EXPECT_DOUBLE_EQ(f[0], 1);
  EXPECT_NEAR(f[1], 0.1, 1e-15);
  EXPECT_NEAR(f[2], 0.01, 1e-16);
  EXPECT_NEAR(f[3], 0.001, 1e-17);
}

TEST(RopeFrequencies, are_divided_by_the_files_factors) {
  const std::vector<float> factors = {1, 2, 4, 8};
  const std::vector<double> f = rope_frequencies({.n_dims = 8, .theta = 10000}, factors);
  EXPECT_NEAR(f[0], 1, 1e-15);
  EXPECT_NEAR(f[1], 0.05, 1e-15);
  EXPECT_NEAR(f[2], 0.0025, 1e-16);
  EXPECT_NEAR(f[3], 0.000125, 1e-17);
}

TEST(RopeFrequencies, of_a_linearly_extended_context_are_all_scaled) {
  const std::vector<double> f = rope_frequencies({.n_dims = 4, .theta = 100, .position_scale = 0.125f}, {});
  EXPECT_NEAR(f[0], 0.125, 1e-15);
  EXPECT_NEAR(f[1], 0.0125, 1e-15);
}

// Values computed by a separate program from the formulas of the YaRN paper.
TEST(RopeFrequencies, of_yarn_keep_high_frequencies_interpolate_low_ones_and_ramp_between) {
  RopeParams p{.n_dims = 64, .theta = 10000, .position_scale = 0.25f, .yarn = {.original_context = 4096}};
  std::vector<double> f = rope_frequencies(p, {});
  for (const auto& [pair, expected] : {std::pair<size_t, double>{0, 1.0},
                                       {5, 0.23713737056616555},
                                       {10, 0.056234132519034905},
                                       {11, 0.039736785900001015},
                                       {15, 0.009488517882700576},
                                       {20, 0.0013378867023789293},
                                       {22, 0.0005471628953965916},
                                       {23, 0.000333380358040831},
                                       {31, 3.33380358040831e-05}}) {
    EXPECT_NEAR(f[pair], expected, 1e-12 * expected) << pair;
  }
  p = {.n_dims = 128, .theta = 1e6, .position_scale = 0.25f, .yarn = {.original_context = 32768}};
  f = rope_frequencies(p, {});
  EXPECT_NEAR(f[20], 0.01333521432163324, 1e-14);
  EXPECT_NEAR(f[30], 0.0010643609812470017, 1e-15);
  EXPECT_NEAR(f[63], 3.102344401879299e-07, 1e-19);
}

TEST(RopeFrequencies, of_yarn_use_the_betas_given) {
  RopeParams p{.n_dims = 64, .theta = 10000, .position_scale = 0.25f, .yarn = {.original_context = 4096}};
  const std::vector<double> plain = rope_frequencies({.n_dims = 64, .theta = 10000}, {});
  p.yarn.beta_fast = p.yarn.beta_slow = 1e-9f;  // every pair rotates more often than that: all are high frequency
  EXPECT_NEAR(rope_frequencies(p, {})[31], plain[31], 1e-15);
  p.yarn.beta_fast = p.yarn.beta_slow = 1e9f;  // all are low frequency
  EXPECT_NEAR(rope_frequencies(p, {})[1], plain[1] / 4, 1e-15);
}

TEST(RopeFrequencies, stay_finite_for_a_hostile_base) {
  const RopeParams p{.n_dims = 8, .theta = 1, .position_scale = 0.25f, .yarn = {.original_context = 1}};
  for (const double f : rope_frequencies(p, {})) EXPECT_TRUE(std::isfinite(f));
}

}  // namespace
}  // namespace zinc
