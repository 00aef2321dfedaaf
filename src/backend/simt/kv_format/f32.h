// float32.
#pragma once

#include "backend/simt/kv_pages.h"

namespace zinc::simt {

struct Kv {
  static constexpr int kPieceElems = 4, kBits = 32, kScaleBytes = 0;
  static constexpr bool kTransformsKeys = false;
  static ZINC_DEVICE float element(const uint4& p, int k) {
    return __uint_as_float(k == 0 ? p.x : k == 1 ? p.y : k == 2 ? p.z : p.w);
  }
  static ZINC_DEVICE float key_scale(const u8*, int, int, int) { return 1; }
  static ZINC_DEVICE float4 values(const u8* rows, int v_dim, int position, int i) {
    return *reinterpret_cast<const float4*>(rows + (static_cast<long long>(position) * v_dim + i) * 4);
  }
  static ZINC_DEVICE void write(u8* dst, u8*, float x) { *reinterpret_cast<float*>(dst) = x; }
};

}  // namespace zinc::simt
