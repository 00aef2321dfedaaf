#include "sample/softmax_exp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace zinc {
namespace {

TEST(SoftmaxExp, is_within_3e_7_of_the_exact_value) {
  double worst = 0.0;
  for (double d = -85.99; d <= 0.0; d += 0.00013) {
    const auto x = static_cast<float>(d);
    worst = std::max(worst, std::abs(double{softmax_exp(x)} / std::exp(double{x}) - 1.0));
  }
  EXPECT_LT(worst, 3e-7);
  EXPECT_EQ(softmax_exp(0.0f), 1.0f);
}

TEST(SoftmaxExp, masked_logits_have_weight_zero) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(softmax_exp(-87.0f), 0.0f);
  EXPECT_EQ(softmax_exp(-kInf), 0.0f);
  EXPECT_EQ(softmax_exp(std::numeric_limits<float>::quiet_NaN()), 0.0f);
  EXPECT_EQ(logit_distance(kInf, FLT_MAX), 0.0f);
  EXPECT_EQ(softmax_exp(logit_distance(-FLT_MAX, FLT_MAX)), 0.0f);
  EXPECT_TRUE(std::isnan(logit_distance(std::numeric_limits<float>::quiet_NaN(), 1.0f)));
}

TEST(TokenWeight, is_a_multiple_of_the_unit_near_the_exact_value) {
  for (double d = -60.0; d <= 0.0; d += 0.00013) {
    const auto x = static_cast<float>(d);
    const float weight = token_weight(x);
    const double units = weight / kWeightUnit;
    ASSERT_EQ(units, std::floor(units)) << d;
    ASSERT_NEAR(weight, std::exp(double{x}), kWeightUnit + 3e-7 * weight) << d;
  }
  EXPECT_EQ(token_weight(0.0f), 1.0f);
  EXPECT_EQ(token_weight(-23.0f), 0.0f);
}

TEST(TokenWeight, the_sampling_target_is_below_the_sum_of_the_weights) {
  constexpr double kNearlyOne = 1.0 - 0x1p-53;
  for (const double sum : {kWeightUnit, 1.0, 3.0, 1e5}) {
    EXPECT_LT(cdf_target(kNearlyOne, sum), sum);
    EXPECT_EQ(cdf_target(0.0, sum), 0.0);
  }
}

}  // namespace
}  // namespace zinc
