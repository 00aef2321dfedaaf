// The header of Q4_K and Q5_K: d, dmin, and eight 6-bit scales and minima in 12 bytes.
#pragma once

#include "backend/simt/panel.h"

namespace zinc::simt {

struct KScales {
  uint4 bytes;
  ZINC_DEVICE float d() const { return low_half(bytes.x); }
  ZINC_DEVICE float dmin() const { return high_half(bytes.x); }
  ZINC_DEVICE int scale(int g) const {
    if (g < 4) return static_cast<int>(bytes.y >> 8 * g & 63u);
    return static_cast<int>((bytes.w >> 8 * (g - 4) & 15u) | (bytes.y >> (8 * (g - 4) + 6) & 3u) << 4);
  }
  ZINC_DEVICE int min(int g) const {
    if (g < 4) return static_cast<int>(bytes.z >> 8 * g & 63u);
    return static_cast<int>((bytes.w >> (8 * (g - 4) + 4) & 15u) | (bytes.z >> (8 * (g - 4) + 6) & 3u) << 4);
  }
  // Scales of groups 4 k to 4 k + 3, a byte each.
  ZINC_DEVICE u32 four_scales(int k) const {
    return k == 0 ? bytes.y & 0x3F3F3F3Fu : (bytes.w & 0x0F0F0F0Fu) | (bytes.y >> 2 & 0x30303030u);
  }
  ZINC_DEVICE u32 four_mins(int k) const {
    return k == 0 ? bytes.z & 0x3F3F3F3Fu : (bytes.w >> 4 & 0x0F0F0F0Fu) | (bytes.z >> 2 & 0x30303030u);
  }
  // The minima of groups 2 i and 2 i + 1 as f16: 1024 + min has min in its low bits.
  ZINC_DEVICE u32 two_mins(int i) const {
    const u32 pair = __byte_perm(four_mins(i / 2), 0x64646464u, i % 2 == 0 ? 0x4140u : 0x4342u);
    return sub_f16x2(pair, 0x64006400u);
  }
};

}  // namespace zinc::simt
