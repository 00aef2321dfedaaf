// E4M3, the 8-bit float of the MXFP8 KV cache: a sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities, the
// largest value is 448. Rounds to nearest even and saturates, as GPUs convert (cvt.rn.satfinite.e4m3x2.f32).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace zinc {

inline constexpr float kMaxE4m3 = 448;

constexpr uint8_t float_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 24 & 0x80u;
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7Fu);  // NaN
  const float magnitude = std::min(std::bit_cast<float>(bits & 0x7FFFFFFFu), kMaxE4m3);
  if (magnitude < 0x1p-6f) {  // adding 2^14 makes the addition round to a multiple of 2^-9
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(magnitude + 0x1p14f) - 0x46800000u));
  }
  const uint32_t magnitude_bits = std::bit_cast<uint32_t>(magnitude), odd = magnitude_bits >> 20 & 1;
  return static_cast<uint8_t>(sign | ((magnitude_bits - (120u << 23) + 0x7FFFFu + odd) >> 20));
}

constexpr float e4m3_to_float(uint8_t e4m3) {
  const uint32_t sign = (e4m3 & 0x80u) << 24, magnitude = e4m3 & 0x7Fu;
  if (magnitude == 0x7Fu) return std::bit_cast<float>(sign | 0x7FC00000u);
  const float value =
      magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9f : std::bit_cast<float>((magnitude << 20) + (120u << 23));
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

}  // namespace zinc
