// BF16, eight per piece.
#pragma once

#include "backend/simt/float_weights.h"

namespace zinc::simt {

struct WeightFormat : Floating {
  static constexpr int kBlockElems = 1, kBlockBytes = 2, kGroupBytes = 64, kPieceElems = 8;
  static ZINC_DEVICE float element(const uint4& p, int k) {
    return bfloat_to_float(static_cast<u16>(component(p, k / 2) >> 16 * (k % 2)));
  }
};

}  // namespace zinc::simt
