// IEEE-754 binary16 and bfloat16 to and from float, bit by bit: subnormals, infinities and NaN payloads are kept (a
// signaling NaN becomes quiet), rounding is to nearest even. Plain arithmetic that compilers vectorize: no F16C is
// assumed, and no intermediate float is subnormal, so that a thread that flushes subnormals to zero (FTZ, DAZ) reads
// the same weights.
#pragma once

#include <bit>
#include <cstdint>

namespace zinc {

// Rebiases the exponent. A subnormal half is first read with an implicit leading 1 (2^-14), which is then subtracted;
// the subtraction is unconditional (of 0 otherwise) because conditional float arithmetic would prevent vectorization.
constexpr float half_to_float(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = (half & 0x7FFFu) << 13;
  const bool is_subnormal = magnitude < 0x00800000u;
  const bool is_special = magnitude >= 0x0F800000u;  // infinity or NaN: the exponent becomes all ones
  const uint32_t bias = is_special ? 224u << 23 : is_subnormal ? 113u << 23 : 112u << 23;
  const float leading = std::bit_cast<float>(is_subnormal ? 0x38800000u : 0u);
  const float value = std::bit_cast<float>(magnitude + bias) - leading;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

constexpr uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));  // NaN
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 makes the addition round to a multiple of 2^-24
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3F000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

constexpr float bfloat_to_float(uint16_t bfloat) { return std::bit_cast<float>(uint32_t{bfloat} << 16); }

constexpr uint16_t float_to_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN, made quiet
  const uint32_t odd = (bits >> 16) & 1;
  return static_cast<uint16_t>((bits + 0x7FFFu + odd) >> 16);
}

}  // namespace zinc
