// What the K-quants without a minimum share: an int8 scale per half group, d per segment.
#pragma once

#include "backend/simt/quantized_weights.h"

namespace zinc::simt {

struct SignedScalesFormat {
  static constexpr int kHeaderBytes = 20;
  static constexpr bool kHasMin = false, kHalfScales = true, kSignedScales = true;
  struct Header {
    uint4 scales;
    u32 d_bits;
    ZINC_DEVICE float d() const { return low_half(d_bits); }
    ZINC_DEVICE int scale(int half_group) const {
      return static_cast<signed char>(component(scales, half_group / 4) >> 8 * (half_group % 4) & 255u);
    }
  };
  static ZINC_DEVICE Header header(const u8* segment, int row) {
    return {load_16(piece(segment, 0, 16, row)), load_4(piece(segment, 16, 4, row))};
  }
};

}  // namespace zinc::simt
