#include "graph/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/support/weight_set.h"

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

// Qwen3's head. Values computed by a separate program from the reference code of the YaRN paper.
TEST(RopeRotations, of_each_scaling_extend_the_context_by_its_factor) {
  const RopeParams p{.n_dims = 128, .theta = 1e6, .extension = {RopeExtensionKind::yarn, 32768, 131072}};
  const std::vector<RopeRotation> rotations = rope_rotations(p, {}, {}, kMaxRopeScalings);
  ASSERT_EQ(rotations.size(), 4u);
  EXPECT_EQ(rotations[0], (RopeRotation{rope_frequencies({.n_dims = 128, .theta = 1e6}, {}), 1}));
  struct Golden {
    float amplitude;
    double f24, f30, f39, f63;
  };
  const Golden golden[] = {
      {1.0693147180559945f, 0.005458018744494565, 0.0012228828295178318, 0.00011682709777506651, 6.204688803758598e-07},
      {1.109861228866811f, 0.005402887242024923, 0.0011172015973372783, 8.221166139726903e-05, 4.136459202505732e-07},
      {1.138629436111989f, 0.005375321490790102, 0.0010643609812470017, 6.490394320837028e-05, 3.102344401879299e-07}};
  for (size_t s = 1; s < rotations.size(); ++s) {
    const std::vector<double>& f = rotations[s].frequencies;
    EXPECT_NEAR(rotations[s].amplitude, golden[s - 1].amplitude, 2e-7) << s;
    EXPECT_EQ(f[23], rotations[0].frequencies[23]) << s;  // the last one that is kept
    // The factor is a float: 1 / 3 has seven digits.
    EXPECT_NEAR(f[24], golden[s - 1].f24, 1e-7 * f[24]) << s;
    EXPECT_NEAR(f[30], golden[s - 1].f30, 1e-7 * f[30]) << s;
    EXPECT_NEAR(f[39], golden[s - 1].f39, 1e-7 * f[39]) << s;
    EXPECT_NEAR(f[63], golden[s - 1].f63, 1e-7 * f[63]) << s;
  }
}

TEST(RopeRotations, of_a_file_with_a_static_factor_are_the_same) {
  for (const int factor : {2, 3, 4}) {
    RopeParams file{.n_dims = 64, .theta = 10000, .position_scale = 1 / static_cast<float>(factor), .amplitude = 0.5f};
    extend_with_yarn(file, 256);
    const RopeParams p{
        .n_dims = 64, .theta = 10000, .amplitude = 0.5f, .extension = {RopeExtensionKind::yarn, 256, 1024}};
    EXPECT_EQ(rope_rotations(p, {}, {}, 4)[static_cast<size_t>(factor - 1)],
              (RopeRotation{rope_frequencies(file, {}), file.amplitude}));
  }
}

TEST(RopeRotations, of_longrope_have_the_long_factors_beyond_the_first_scaling) {
  const RopeParams p{.n_dims = 4, .amplitude = 1.2f, .extension = {RopeExtensionKind::longrope, 64, 256}};
  const std::vector<float> brief = {1, 2}, lengthy = {3, 7};
  const std::vector<RopeRotation> rotations = rope_rotations(p, brief, lengthy, 2);
  ASSERT_EQ(rotations.size(), 2u);
  EXPECT_EQ(rotations[0], (RopeRotation{rope_frequencies({.n_dims = 4}, brief), 1.2f}));
  EXPECT_EQ(rotations[1], (RopeRotation{rope_frequencies({.n_dims = 4}, lengthy), 1.2f}));
}

TEST(RopeRotations, without_an_extension_are_one) {
  EXPECT_EQ(rope_rotations({.n_dims = 8}, {}, {}, kMaxRopeScalings).size(), 1u);
}

Graph graph_with(const RopeExtension& extension) {
  static const WeightSet weights = WeightSet().add("factors", {4});
  GraphBuilder g("toy", weights.source());
  const Value factors = extension.kind == RopeExtensionKind::longrope ? g.weight("factors", {4}) : Value{};
  const Value first = g.rope(g.view(g.hidden_in(16), {2, 8}), {.n_dims = 8});
  g.logits(g.rows(g.flatten(g.rope(first, {.n_dims = 8, .extension = extension}, factors, factors))));
  return std::move(g.finish().value());
}

TEST(RopeContexts, are_multiples_of_the_trained_context_up_to_that_of_the_server) {
  const Graph yarn = graph_with({RopeExtensionKind::yarn, 100, 400});
  EXPECT_EQ(rope_contexts(yarn, 80), std::vector<int>{80});
  EXPECT_EQ(rope_contexts(yarn, 100), std::vector<int>{100});
  EXPECT_EQ(rope_contexts(yarn, 250), (std::vector<int>{100, 200, 250}));
  EXPECT_EQ(rope_contexts(yarn, 400), (std::vector<int>{100, 200, 300, 400}));
  EXPECT_EQ(rope_contexts(yarn, 900), (std::vector<int>{100, 200, 300, 900}));  // a draft model of a longer target
  EXPECT_EQ(rope_contexts(graph_with({}), 900), std::vector<int>{900});
}

TEST(RopeContexts, of_longrope_are_two) {
  const Graph longrope = graph_with({RopeExtensionKind::longrope, 64, 256});
  EXPECT_EQ(rope_contexts(longrope, 64), std::vector<int>{64});
  EXPECT_EQ(rope_contexts(longrope, 256), (std::vector<int>{64, 256}));
}

TEST(RopeContexts, give_each_length_the_smallest_scaling_that_holds_it) {
  const std::vector<int> contexts = {100, 200, 250};
  EXPECT_EQ(rope_scaling_for(contexts, 1), 0);
  EXPECT_EQ(rope_scaling_for(contexts, 100), 0);
  EXPECT_EQ(rope_scaling_for(contexts, 101), 1);
  EXPECT_EQ(rope_scaling_for(contexts, 250), 2);
  EXPECT_EQ(rope_scaling_for(contexts, 5'000'000'000), 2);
}

TEST(RopeFrequencies, stay_finite_for_a_hostile_base) {
  const RopeParams p{.n_dims = 8, .theta = 1, .position_scale = 0.25f, .yarn = {.original_context = 1}};
  for (const double f : rope_frequencies(p, {})) EXPECT_TRUE(std::isfinite(f));
}

}  // namespace
}  // namespace zinc
