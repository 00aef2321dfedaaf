#include "tensor/hadamard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace zinc {
namespace {

std::vector<float> random_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = normal(random);
  return out;
}

TEST(Hadamard, keeps_the_product_of_a_key_and_a_query) {
  std::vector<float> key = random_values(96, 1), query = random_values(96, 2);
  const auto dot = [&] {
    double sum = 0;
    for (size_t i = 0; i < key.size(); ++i) sum += double{key[i]} * query[i];
    return sum;
  };
  const double expected = dot();
  hadamard_32(key, kKeyFactor);
  hadamard_32(query, kQueryFactor);
  EXPECT_NEAR(dot(), expected, 1e-5);
}

TEST(Hadamard, twice_is_the_identity) {
  const std::vector<float> expected = random_values(64, 3);
  std::vector<float> x = expected;
  hadamard_32(x, kKeyFactor);
  hadamard_32(x, kQueryFactor);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], expected[i], 1e-6);
}

TEST(Hadamard, spreads_an_outlier_over_its_block_only) {
  std::vector<float> x(64, 0.0f);
  x[35] = 8;
  hadamard_32(x, kKeyFactor);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::abs(x[i]), i < 32 ? 0.0f : 2.0f) << i;
}

}  // namespace
}  // namespace zinc
