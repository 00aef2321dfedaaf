#include "sample/rng.h"

#include <gtest/gtest.h>

#include <set>

namespace zinc {
namespace {

using Words = std::array<uint32_t, 4>;

// Vectors of the Random123 distribution (kat_vectors, "philox4x32 10").
TEST(Rng, philox_matches_the_published_vectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, uniform_is_a_function_of_seed_stream_and_position) {
  EXPECT_EQ(Rng(42).uniform(7), Rng(42).uniform(7));
  EXPECT_EQ(Rng(0).uniform(0), static_cast<double>((uint64_t{0x6627e8d5} << 32 | 0xe169c58d) >> 11) * 0x1p-53);
  const std::set<double> distinct = {Rng(42).uniform(7),
                                     Rng(42).uniform(8),
                                     Rng(43).uniform(7),
                                     Rng(42, 1).uniform(7),
                                     Rng(42).uniform(7 + (uint64_t{1} << 32)),
                                     Rng(42 + (uint64_t{1} << 32)).uniform(7),
                                     Rng(42, uint64_t{1} << 32).uniform(7)};
  EXPECT_EQ(distinct.size(), 7u);
}

TEST(Rng, uniform_fills_the_unit_interval_evenly) {
  const Rng rng(1);
  std::array<int, 10> n_in{};
  double sum = 0.0;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const double u = rng.uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++n_in[static_cast<size_t>(u * 10)];
    sum += u;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.004);  // four standard errors
  double chi2 = 0.0;
  for (const int n : n_in) chi2 += (n - 10'000.0) * (n - 10'000.0) / 10'000.0;
  EXPECT_LT(chi2, 27.9);  // 9 degrees of freedom, p = 0.001
}

TEST(Rng, random_seeds_differ) { EXPECT_NE(random_seed(), random_seed()); }

}  // namespace
}  // namespace zinc
