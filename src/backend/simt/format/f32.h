// F32, four per piece.
#pragma once

#include "backend/simt/float_weights.h"

namespace zinc::simt {

struct WeightFormat : Floating {
  static constexpr int kBlockElems = 1, kBlockBytes = 4, kGroupBytes = 128, kPieceElems = 4;
  static ZINC_DEVICE float element(const uint4& p, int k) { return __uint_as_float(component(p, k)); }
};

}  // namespace zinc::simt
