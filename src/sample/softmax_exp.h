// e^d for d <= 0 in single precision, written so that compilers vectorize loops over it, with the same bits on every
// machine without fused multiply-add. Relative error below 3e-7; below e^-86 and for NaN the result is 0.
#pragma once

#include <bit>
#include <cfloat>
#include <cstdint>

namespace zinc {

// The exponent of a token's weight: its distance to the largest logit. +infinity counts as the largest float.
inline float logit_distance(float logit, float max) { return (FLT_MAX < logit ? FLT_MAX : logit) - max; }

inline float softmax_exp(float d) {
  constexpr float kLowest = -86.0f;  // keeps 2^n a normal number
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693145752f;  // ln 2 in two parts: the high one has few bits, so n * high is exact
  constexpr float kLn2Low = 1.42860677e-6f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits

  const float x = d > kLowest ? d : kLowest;
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2
  float p = 1.0f / 720.0f;                           // Taylor to r^6: the rest is below 2e-8
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) << 23;
  const float scaled = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
  return d > kLowest ? scaled : 0.0f;
}

// The weight of a token at this distance, as a multiple of kWeightUnit: sums of up to 2^21 weights are exact in a
// double and in a 64-bit integer, so that every device samples the same token in any order of summation.
inline constexpr double kWeightUnit = 0x1p-32;
inline float token_weight(float distance) {
  constexpr float kCoarse =
      0x1p-9f;  // floats of this size or larger are multiples of the unit; adding it rounds smaller ones
  const float weight = softmax_exp(distance);
  return weight < kCoarse ? (weight + kCoarse) - kCoarse : weight;
}

// The sampling target in weights of this sum: the token is the first whose cumulative sum is larger. Below the sum, to
// which the multiplication may round.
inline double cdf_target(double uniform, double sum) {
  const double target = uniform * sum;
  return target < sum - kWeightUnit ? target : sum - kWeightUnit;
}

}  // namespace zinc
