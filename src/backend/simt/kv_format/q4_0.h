// Four bits minus 8, then an f16 scale per 32: keys' by position, values' by row. The elements of Q4_0
// (tensor/format/q4_0.cc), of keys after transform_key. Of eight elements in a word, 2 k is at bit 4 k and 2 k + 1 at
// bit 16 + 4 k: a shift and a mask give the pair as it is in f16.
#pragma once

#include "backend/simt/kv_pages.h"

namespace zinc::simt {

struct Kv {
  using Scale = u16;
  using Eight = u32;
  using Sixteen = uint2;
  static constexpr int kPieceElems = 32, kBits = 4, kScaleBytes = 2;
  static constexpr bool kTransformsKeys = true;
  static ZINC_DEVICE int shift_of(int i) { return 4 * (i % 8 / 2) + 16 * (i % 2); }
  static ZINC_DEVICE float element_of(u32 word, int i) {
    return static_cast<float>(static_cast<int>(word >> shift_of(i) & 15u) - 8);
  }
  static ZINC_DEVICE float element(const uint4& p, int k) {
    return element_of(k / 8 == 0 ? p.x : k / 8 == 1 ? p.y : k / 8 == 2 ? p.z : p.w, k);
  }
  static ZINC_DEVICE float key_scale(const u8* keys, int k_dim, int position, int block) {
    return half_to_float(reinterpret_cast<const u16*>(keys + scales_offset<Kv>(k_dim))[block * kPageTokens + position]);
  }
  static ZINC_DEVICE float4 values(const u8* rows, int v_dim, int position, int i) {
    const u32 word = *reinterpret_cast<const u32*>(rows + value_offset<Kv>(position, v_dim, i / 8 * 8));
    const u16* scales = reinterpret_cast<const u16*>(rows + scales_offset<Kv>(v_dim));
    const float scale = half_to_float(scales[position * (v_dim / 32) + i / 32]);
    return make_float4(element_of(word, i) * scale, element_of(word, i + 1) * scale, element_of(word, i + 2) * scale,
                       element_of(word, i + 3) * scale);
  }

  // As in Q4_0: the element of largest magnitude becomes -8. Magnitudes of the block's largest positive and negative
  // element.
  static ZINC_DEVICE float scale_for(float positive, float negative) {
    return positive > negative ? positive / -8.0f : negative / 8.0f;
  }
  static ZINC_DEVICE u32 quantize(float x, float inverse) {
    const float q = floorf(x * inverse + 8.5f);
    return isnan(q) ? 8u : static_cast<u32>(fminf(fmaxf(q, 0.0f), 15.0f));
  }
  // An element per lane. Every eighth lane stores the word of eight.
  static ZINC_DEVICE void write(u8* dst, u8* scale_dst, float x) {
    const float d = scale_for(warp_max(fmaxf(x, 0.0f), 32), warp_max(fmaxf(-x, 0.0f), 32));
    const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    u32 word = quantize(x, inverse) << shift_of(lane_id());
#pragma unroll
    for (int step = 1; step < 8; step *= 2) word |= __shfl_xor_sync(0xFFFFFFFFu, word, step);
    if (lane_id() % 8 == 0) *reinterpret_cast<u32*>(dst) = word;
    if (lane_id() == 0) *reinterpret_cast<u16*>(scale_dst) = float_to_half(d);
  }
  // Eight elements per lane, a block over four lanes.
  static ZINC_DEVICE u32 quantize_vec8(const Vec8& x, u16& scale) {
    float positive = 0, negative = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      positive = fmaxf(positive, x.v[i]);
      negative = fmaxf(negative, -x.v[i]);
    }
    const float d = scale_for(warp_max(positive, 4), warp_max(negative, 4)), inverse = d != 0.0f ? 1.0f / d : 0.0f;
    scale = float_to_half(d);
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) word |= quantize(x.v[i], inverse) << shift_of(i);
    return word;
  }
  static ZINC_DEVICE u32 first(const uint2& words) { return words.x; }
  static ZINC_DEVICE u32 second(const uint2& words) { return words.y; }
  // 1024 + q as f16 has q in its low bits; minus 1032 it is q - 8, exactly.
  static ZINC_DEVICE u32 pair_to_f16(u32 word, int k, u32 scales) {
    return mul_f16x2(sub_f16x2((word >> 4 * k & 0x000F000Fu) | 0x64006400u, 0x64086408u), scales);
  }
  static ZINC_DEVICE uint4 to_f16(u32 word, u16 scale) {
    const u32 scales = scale | static_cast<u32>(scale) << 16;
    return make_uint4(pair_to_f16(word, 0, scales), pair_to_f16(word, 1, scales), pair_to_f16(word, 2, scales),
                      pair_to_f16(word, 3, scales));
  }
};

}  // namespace zinc::simt
