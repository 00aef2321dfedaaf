// float16, which tensor cores read without conversion.
#pragma once

#include "backend/simt/kv_pages.h"

namespace zinc::simt {

struct Kv {
  static constexpr int kPieceElems = 8, kBits = 16, kScaleBytes = 0;
  static constexpr bool kTransformsKeys = false;
  static ZINC_DEVICE float element(const uint4& p, int k) {
    const u32 pair = k / 2 == 0 ? p.x : k / 2 == 1 ? p.y : k / 2 == 2 ? p.z : p.w;
    return k % 2 == 0 ? low_half(pair) : high_half(pair);
  }
  static ZINC_DEVICE float key_scale(const u8*, int, int, int) { return 1; }
  static ZINC_DEVICE float4 values(const u8* rows, int v_dim, int position, int i) {
    const uint2 v = *reinterpret_cast<const uint2*>(rows + (static_cast<long long>(position) * v_dim + i) * 2);
    return make_float4(low_half(v.x), high_half(v.x), low_half(v.y), high_half(v.y));
  }
  static ZINC_DEVICE void write(u8* dst, u8*, float x) { *reinterpret_cast<u16*>(dst) = float_to_half(x); }
};

}  // namespace zinc::simt
