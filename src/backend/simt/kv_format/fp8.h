// E4M3, then a power-of-two scale per 32 as a float's exponent byte: keys' by position, values' by row. The exponent is
// limited so that every value is exact in f16 (tensor/format/fp8.cc).
#pragma once

#include "backend/simt/kv_pages.h"

namespace zinc::simt {

struct Kv {
  using Scale = u8;
  using Eight = uint2;
  using Sixteen = uint4;
  static constexpr int kPieceElems = 16, kBits = 8, kScaleBytes = 1;
  static constexpr bool kTransformsKeys = false;
  static ZINC_DEVICE float power(u32 exponent) { return __uint_as_float(exponent << 23); }
  static ZINC_DEVICE float element(const uint4& p, int k) {
    const u32 word = k / 4 == 0 ? p.x : k / 4 == 1 ? p.y : k / 4 == 2 ? p.z : p.w;
    return low_half(e4m3_to_halves(static_cast<u16>(word >> 8 * (k % 4) & 255u)));
  }
  static ZINC_DEVICE float key_scale(const u8* keys, int k_dim, int position, int block) {
    return power(keys[k_dim * kPageTokens + block * kPageTokens + position]);
  }
  static ZINC_DEVICE float4 values(const u8* rows, int v_dim, int position, int i) {
    const u32 v = *reinterpret_cast<const u32*>(rows + position * v_dim + i);
    const float scale = power(rows[v_dim * kPageTokens + position * (v_dim / 32) + i / 32]);
    const u32 a = e4m3_to_halves(static_cast<u16>(v)), b = e4m3_to_halves(static_cast<u16>(v >> 16));
    return make_float4(low_half(a) * scale, high_half(a) * scale, low_half(b) * scale, high_half(b) * scale);
  }
  static ZINC_DEVICE u32 exponent_for(float amax) {
    constexpr u32 kMinExponent = 127 - 14, kMaxExponent = 127 + 7;
    return min(max((__float_as_uint(amax) + 0x1FFFFFu) >> 23, kMinExponent + 8), kMaxExponent + 8) - 8;
  }
  static ZINC_DEVICE float nan_to_zero(float x) { return isnan(x) ? 0.0f : x; }
  static ZINC_DEVICE void write(u8* dst, u8* scale_dst, float x) {
    const u32 exponent = exponent_for(warp_max(fabsf(x), 32));
    *dst = static_cast<u8>(floats_to_e4m3(nan_to_zero(x) * power(254 - exponent), 0.0f));
    if (lane_id() == 0) *scale_dst = static_cast<u8>(exponent);
  }
  static ZINC_DEVICE uint2 quantize_vec8(const Vec8& x, u8& scale) {
    const u32 exponent = exponent_for(amax_of_4_lanes(x));
    const float inverse = power(254 - exponent);
    scale = static_cast<u8>(exponent);
    const auto pair = [&](int i) {
      return static_cast<u32>(floats_to_e4m3(nan_to_zero(x.v[i]) * inverse, nan_to_zero(x.v[i + 1]) * inverse));
    };
    return make_uint2(pair(0) | pair(2) << 16, pair(4) | pair(6) << 16);
  }
  static ZINC_DEVICE uint2 first(const uint4& bytes) { return make_uint2(bytes.x, bytes.y); }
  static ZINC_DEVICE uint2 second(const uint4& bytes) { return make_uint2(bytes.z, bytes.w); }
  static ZINC_DEVICE uint4 to_f16(uint2 bytes, u8 scale) {
    const u32 scales = (scale - 112u) * 0x04000400u;  // the f16 exponent, twice
    const auto pair = [&](u32 e4m3_pair) { return mul_f16x2(e4m3_to_halves(static_cast<u16>(e4m3_pair)), scales); };
    return make_uint4(pair(bytes.x), pair(bytes.x >> 16), pair(bytes.y), pair(bytes.y >> 16));
  }
};

}  // namespace zinc::simt
