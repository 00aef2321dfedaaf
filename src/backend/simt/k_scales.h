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
};

}  // namespace zinc::simt
