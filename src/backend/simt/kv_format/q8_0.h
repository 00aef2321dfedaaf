// int8, then an f16 scale per 32: keys' by position, values' by row. The elements of Q8_0 (tensor/format/q8_0.cc).
#pragma once

#include "backend/simt/kv_pages.h"

namespace zinc::simt {

// Four int8 times their scale (packed twice), as f16.
ZINC_DEVICE uint2 scaled_f16(u32 bytes, u32 scales) {
  // 1024 + (byte + 128) as f16 has 0x64 in the upper byte; minus 1152 it is the byte, exactly.
  const u32 shifted = bytes ^ 0x80808080u;
  uint2 out = {__byte_perm(shifted, 0x64646464u, 0x4140u), __byte_perm(shifted, 0x64646464u, 0x4342u)};
  out.x = mul_f16x2(sub_f16x2(out.x, 0x64806480u), scales);
  out.y = mul_f16x2(sub_f16x2(out.y, 0x64806480u), scales);
  return out;
}

struct Kv {
  using Scale = u16;
  using Eight = uint2;
  using Sixteen = uint4;
  static constexpr int kPieceElems = 16, kBits = 8, kScaleBytes = 2;
  static constexpr bool kTransformsKeys = false;
  static ZINC_DEVICE float element(const uint4& p, int k) {
    const u32 word = k / 4 == 0 ? p.x : k / 4 == 1 ? p.y : k / 4 == 2 ? p.z : p.w;
    return static_cast<float>(static_cast<signed char>(word >> 8 * (k % 4) & 255u));
  }
  static ZINC_DEVICE float key_scale(const u8* keys, int k_dim, int position, int block) {
    return half_to_float(reinterpret_cast<const u16*>(keys + k_dim * kPageTokens)[block * kPageTokens + position]);
  }
  static ZINC_DEVICE float4 values(const u8* rows, int v_dim, int position, int i) {
    const u32 v = *reinterpret_cast<const u32*>(rows + position * v_dim + i);
    const u16* scales = reinterpret_cast<const u16*>(rows + v_dim * kPageTokens);
    const float scale = half_to_float(scales[position * (v_dim / 32) + i / 32]);
    const auto byte = [&](int b) { return static_cast<float>(static_cast<signed char>(v >> 8 * b & 255u)) * scale; };
    return make_float4(byte(0), byte(1), byte(2), byte(3));
  }
  // A warp's block of 32 has one scale, d; rounded half away from zero, as in Q8_0.
  static ZINC_DEVICE float quantize(float x, float& d) {
    d = warp_max(fabsf(x), 32) / 127.0f;
    return round_to_int8(x * (d != 0.0f ? 1.0f / d : 0.0f));
  }
  static ZINC_DEVICE float round_to_int8(float x) {
    const float q = roundf(x);
    return fabsf(q) <= 127.0f ? q : 0.0f;
  }
  static ZINC_DEVICE void write(u8* dst, u8* scale_dst, float x) {
    float d;
    *reinterpret_cast<signed char*>(dst) = static_cast<signed char>(quantize(x, d));
    if (lane_id() == 0) *reinterpret_cast<u16*>(scale_dst) = float_to_half(d);
  }
  // Eight elements per lane, a block over four lanes.
  static ZINC_DEVICE uint2 quantize_vec8(const Vec8& x, u16& scale) {
    const float d = amax_of_4_lanes(x) / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    scale = float_to_half(d);
    u32 words[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      words[i / 4] |= (static_cast<u32>(static_cast<int>(round_to_int8(x.v[i] * inverse))) & 255u) << 8 * (i % 4);
    }
    return make_uint2(words[0], words[1]);
  }
  static ZINC_DEVICE uint2 first(const uint4& bytes) { return make_uint2(bytes.x, bytes.y); }
  static ZINC_DEVICE uint2 second(const uint4& bytes) { return make_uint2(bytes.z, bytes.w); }
  static ZINC_DEVICE uint4 to_f16(uint2 bytes, u16 scale) {
    const u32 scales = scale | static_cast<u32>(scale) << 16;
    const uint2 a = scaled_f16(bytes.x, scales), b = scaled_f16(bytes.y, scales);
    return make_uint4(a.x, a.y, b.x, b.y);
  }
};

}  // namespace zinc::simt
