// Eight 6-bit scales and eight 6-bit minima in 12 bytes, as Q4_K and Q5_K pack them: bytes 0-3 hold scales 0-3 and
// bytes 4-7 minima 0-3 in their low six bits; bytes 8-11 hold the low nibbles of scale and minimum 4-7, whose top two
// bits are the spare bits of the first eight bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zinc {

struct ScaleMin {
  int scale;
  int min;
};

constexpr ScaleMin k_scale_min(const uint8_t (&packed)[12], size_t i) {
  if (i < 4) return {packed[i] & 63, packed[i + 4] & 63};
  return {(packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4, (packed[i + 4] >> 4) | (packed[i] >> 6) << 4};
}

}  // namespace zinc
