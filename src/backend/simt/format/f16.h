// F16, eight per piece.
#pragma once

#include "backend/simt/float_weights.h"

namespace zinc::simt {

struct WeightFormat : Floating {
  static constexpr int kBlockElems = 1, kBlockBytes = 2, kGroupBytes = 64, kPieceElems = 8;
  static ZINC_DEVICE float element(const uint4& p, int k) {
    return (k % 2 == 0 ? low_half(component(p, k / 2)) : high_half(component(p, k / 2)));
  }
};

}  // namespace zinc::simt
