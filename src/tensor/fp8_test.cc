#include "tensor/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tensor/format.h"
#include "tensor/half.h"

namespace zinc {
namespace {

// E4M3 by its definition, in double arithmetic.
double e4m3_value(uint32_t code) {
  const int exponent = static_cast<int>(code >> 3 & 15);
  const double mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

std::vector<float> round_trip(std::vector<float> in) {
  const Format& format = *find_format("fp8");
  std::vector<std::byte> blocks(row_bytes(format, in.size()));
  format.quantize(in, blocks);
  format.dequantize(blocks, in);
  return in;
}

TEST(E4m3, every_code_round_trips) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    EXPECT_EQ(value, e4m3_value(code)) << code;
    EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
    EXPECT_EQ(float_to_e4m3(value), code);
  }
}

TEST(E4m3, rounding_is_to_nearest_even_everywhere) {
  for (uint8_t code = 0; code < 0x7E; ++code) {
    const float middle = (e4m3_to_float(code) + e4m3_to_float(static_cast<uint8_t>(code + 1))) / 2;
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(float_to_e4m3(middle), code + code % 2);
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 1e9f)), code + 1);
    EXPECT_EQ(float_to_e4m3(-middle), 0x80 + code + code % 2);
  }
}

TEST(E4m3, too_large_values_saturate) {
  for (const float large : {449.0f, 500.0f, 1e9f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(float_to_e4m3(large), 0x7E);
    EXPECT_EQ(float_to_e4m3(-large), 0xFE);
  }
  EXPECT_EQ(float_to_e4m3(std::nanf("")), 0x7F);
}

TEST(Fp8, scale_is_the_smallest_power_of_two_without_saturation) {
  for (const auto& [largest, e] : {std::pair{448.0f, 0},
                                   {449.0f, 1},
                                   {256.0f, 0},
                                   {224.0f, -1},
                                   {225.0f, 0},
                                   {1.0f, -8},
                                   {1.75f, -8},
                                   {1.7500001f, -7},
                                   {57344.0f, 7}}) {
    std::vector<float> in(32, 0.0f);
    in[31] = -largest;
    std::vector<std::byte> block(33);
    find_format("fp8")->quantize(in, block);
    EXPECT_EQ(static_cast<int>(block[0]) - 127, e) << largest;
    EXPECT_NEAR(round_trip(in)[31], -largest, largest / 16) << largest;
  }
}

TEST(Fp8, outlier_keeps_precision_of_values_2_to_the_14_below_it) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> size(0.02f, 0.1f);
  std::vector<float> in(32);
  for (float& x : in) x = size(random);
  in[5] = 300.0f;
  const std::vector<float> out = round_trip(in);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(out[i], in[i], in[i] / 16) << i;
}

// Kernels compute in f16: dequantized values must be exact there.
TEST(Fp8, every_value_is_exactly_representable_in_f16) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> power(-40.0f, 20.0f), share(-1.0f, 1.0f);
  for (int n = 0; n < 2000; ++n) {
    std::vector<float> in(32);
    for (float& x : in) x = std::exp2(power(random)) * share(random);
    for (const float x : round_trip(in)) {
      ASSERT_EQ(half_to_float(float_to_half(x)), x);
      ASSERT_TRUE(std::isfinite(x));
    }
  }
}

TEST(Fp8, relative_error_is_at_most_a_sixteenth_from_2_to_the_minus_20_to_57344) {
  for (float x = 0x1p-20f; x <= 57344.0f; x *= 1.01f) {
    EXPECT_NEAR(round_trip(std::vector<float>(32, x))[0], x, x / 16) << x;
  }
}

TEST(Fp8, non_finite_elements_do_not_affect_the_others) {
  std::vector<float> in(32, 1.0f);
  in[0] = std::nanf("");
  EXPECT_EQ(round_trip(in)[0], 0.0f);
  EXPECT_EQ(round_trip(in)[1], 1.0f);
  in[0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(round_trip(in)[0], 57344.0f);
  EXPECT_EQ(round_trip(in)[1], 1.0f);
  EXPECT_EQ(round_trip(std::vector<float>(32, 0.0f)), std::vector<float>(32, 0.0f));
  EXPECT_EQ(round_trip(std::vector<float>(32, 1e-42f)), std::vector<float>(32, 0.0f));
}

TEST(Fp8, has_no_gguf_type) { EXPECT_EQ(find_format(find_format("fp8")->gguf_id), nullptr); }

}  // namespace
}  // namespace zinc
