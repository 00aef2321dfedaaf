#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace zinc {
namespace {

// Binary16 by its definition, in double arithmetic.
double half_value(uint32_t half) {
  const int exponent = static_cast<int>(half >> 10 & 31);
  const double mantissa = half & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, every_finite_half_round_trips) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7C00) == 0x7C00) continue;
    const float value = half_to_float(static_cast<uint16_t>(half));
    ASSERT_EQ(value, half_value(half)) << half;
    ASSERT_EQ(std::signbit(value), half >= 0x8000) << half;
    ASSERT_EQ(float_to_half(value), half);
  }
}

TEST(Half, infinities_and_nans_keep_sign_and_payload) {
  EXPECT_EQ(half_to_float(0x7C00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(half_to_float(0xFC00), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(std::bit_cast<uint32_t>(half_to_float(0xFE01)), 0xFFC02000u);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(float_to_half(std::bit_cast<float>(0xFFC02000u)), 0xFE01);
  EXPECT_EQ(float_to_half(std::bit_cast<float>(0x7F800001u)), 0x7E00);  // a payload that would vanish stays a NaN
}

// Between neighbors a and b: below the midpoint rounds to a, above it to b, the midpoint to the even one.
TEST(Half, rounding_is_to_nearest_even_everywhere) {
  for (uint32_t half = 0; half < 0x7C00; ++half) {
    const double below = half_value(half);
    const double above = half == 0x7BFF ? 65536.0 : half_value(half + 1);
    const float middle = static_cast<float>((below + above) / 2);  // exact: one bit more than a half has
    const uint32_t even = half % 2 == 0 ? half : half + 1;
    ASSERT_EQ(float_to_half(middle), even) << half;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9f)), half + 1);
    ASSERT_EQ(float_to_half(-middle), even | 0x8000);
  }
  EXPECT_EQ(float_to_half(1e30f), 0x7C00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(Half, every_bfloat_round_trips_and_ties_round_to_even) {
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const uint16_t bfloat = static_cast<uint16_t>(bits);
    ASSERT_EQ(float_to_bfloat(bfloat_to_float(bfloat)), bits);
    const float middle = std::bit_cast<float>(bits << 16 | 0x8000);
    ASSERT_EQ(float_to_bfloat(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(float_to_bfloat(std::bit_cast<float>(bits << 16 | 0x7FFF)), bits);
    ASSERT_EQ(float_to_bfloat(std::bit_cast<float>(bits << 16 | 0x8001)), bits + 1);
  }
  EXPECT_TRUE(std::isnan(bfloat_to_float(float_to_bfloat(std::bit_cast<float>(0x7F800001u)))));
}

}  // namespace
}  // namespace zinc
