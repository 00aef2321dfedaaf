// Eight 6-bit scales and eight 6-bit minima in 12 bytes, as Q4_K and Q5_K pack them: bytes 0-3 hold scales 0-3 and
// bytes 4-7 minima 0-3 in their low six bits; bytes 8-11 hold the low nibbles of scale and minimum 4-7, whose top two
// bits are the spare bits of the first eight bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zinc {

struct ScaleMin {
  int scale;
  int min;
};

constexpr ScaleMin k_scale_min(const uint8_t (&packed)[12], size_t i) {
  if (i < 4) return {packed[i] & 63, packed[i + 4] & 63};
  return {(packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4, (packed[i + 4] >> 4) | (packed[i] >> 6) << 4};
}

// REQUIRES: all below 64.
constexpr void pack_k_scales(std::span<const uint8_t, 8> scales, std::span<const uint8_t, 8> mins,
                             uint8_t (&packed)[12]) {
  for (size_t i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(scales[i] | scales[i + 4] >> 4 << 6);
    packed[i + 4] = static_cast<uint8_t>(mins[i] | mins[i + 4] >> 4 << 6);
    packed[i + 8] = static_cast<uint8_t>((scales[i + 4] & 15) | (mins[i + 4] & 15) << 4);
  }
}

}  // namespace zinc
