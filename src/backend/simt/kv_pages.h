// KV cache formats in pages, and the merge of softmax partials.
// A head's keys in a page are a panel of 32 positions in pieces of 16 bytes, one lane per position; its values are
// rows.
#pragma once

#include "backend/simt/quantize.h"

namespace zinc::simt {

struct KvF32 {
  static constexpr int kPieceElems = 4, kElemBytes = 4, kScaleBytes = 0;
  static ZINC_DEVICE float element(const uint4& p, int k) {
    return __uint_as_float(k == 0 ? p.x : k == 1 ? p.y : k == 2 ? p.z : p.w);
  }
  static ZINC_DEVICE float key_scale(const u8*, int, int, int) { return 1; }
  static ZINC_DEVICE float4 values(const u8* rows, int v_dim, int position, int i) {
    return *reinterpret_cast<const float4*>(rows + (static_cast<long long>(position) * v_dim + i) * 4);
  }
  static ZINC_DEVICE void write(u8* dst, u8*, float x) { *reinterpret_cast<float*>(dst) = x; }
};

struct KvF16 {
  static constexpr int kPieceElems = 8, kElemBytes = 2, kScaleBytes = 0;
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

// Four int8 times their scale (packed twice), as f16.
ZINC_DEVICE uint2 scaled_f16(u32 bytes, u32 scales) {
  // 1024 + (byte + 128) as f16 has 0x64 in the upper byte; minus 1152 it is the byte, exactly.
  const u32 shifted = bytes ^ 0x80808080u;
  uint2 out = {__byte_perm(shifted, 0x64646464u, 0x4140u), __byte_perm(shifted, 0x64646464u, 0x4342u)};
  out.x = mul_f16x2(sub_f16x2(out.x, 0x64806480u), scales);
  out.y = mul_f16x2(sub_f16x2(out.y, 0x64806480u), scales);
  return out;
}

// Absolute maximum of a block spread over four lanes.
ZINC_DEVICE float amax_of_4_lanes(const Vec8& x) {
  float amax = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = fmaxf(amax, fabsf(x.v[i]));
  return warp_max(amax, 4);
}

// int8, then an f16 scale per 32: keys' by position, values' by row.
struct KvQ8 {
  using Scale = u16;
  static constexpr int kPieceElems = 16, kElemBytes = 1, kScaleBytes = 2;
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
  static ZINC_DEVICE uint4 to_f16(uint2 bytes, u16 scale) {
    const u32 scales = scale | static_cast<u32>(scale) << 16;
    const uint2 a = scaled_f16(bytes.x, scales), b = scaled_f16(bytes.y, scales);
    return make_uint4(a.x, a.y, b.x, b.y);
  }
};

// E4M3, then a power-of-two scale per 32 as a float's exponent byte: keys' by position, values' by row. The exponent is
// limited so that every value is exact in f16 (tensor/format/fp8.cc).
struct KvFp8 {
  using Scale = u8;
  static constexpr int kPieceElems = 16, kElemBytes = 1, kScaleBytes = 1;
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
  static ZINC_DEVICE uint4 to_f16(uint2 bytes, u8 scale) {
    const u32 scales = (scale - 112u) * 0x04000400u;  // the f16 exponent, twice
    const auto pair = [&](u32 e4m3_pair) { return mul_f16x2(e4m3_to_halves(static_cast<u16>(e4m3_pair)), scales); };
    return make_uint4(pair(bytes.x), pair(bytes.x >> 16), pair(bytes.y), pair(bytes.y >> 16));
  }
};

template <int format>
struct KvOf;
template <>
struct KvOf<kKvF32> {
  using Type = KvF32;
};
template <>
struct KvOf<kKvF16> {
  using Type = KvF16;
};
template <>
struct KvOf<kKvQ8> {
  using Type = KvQ8;
};
template <>
struct KvOf<kKvFp8> {
  using Type = KvFp8;
};

ZINC_DEVICE int padded(int n) { return (n + 31) / 32 * 32; }

// The page that holds `position` of sequence `seq`. group: page group.
ZINC_DEVICE int page_of(const Step& step, int group, int seq, int position) {
  const int column = position / kPageTokens - step.first_column[group * step.max_seqs + seq];
  const int* entries = step.counts + step.counts[kPageTableOffset + group];
  return entries[seq * step.counts[kPageTableStride + group] + column];
}

ZINC_DEVICE u8* head_of(const KvLayer& kv, int page, int head) {
  return kv.pages + page * kv.page_bytes + static_cast<long long>(head) * kv.head_bytes;
}

struct SoftmaxState {
  float max, sum;
};

// Merges a chunk's softmax state into `all`. old_scale and new_scale rescale the accumulated output and the chunk's
// output. REQUIRES: the chunk has a visible position.
ZINC_DEVICE void merge_softmax(SoftmaxState& all, const SoftmaxState& chunk, float& old_scale, float& new_scale) {
  const float max_diff = all.max - chunk.max, scale = expf(-fabsf(max_diff));
  old_scale = max_diff < 0 ? scale : 1.0f;  // the larger max keeps scale 1
  new_scale = max_diff < 0 ? 1.0f : scale;
  all.sum = fmaf(all.sum, old_scale, chunk.sum * new_scale);
  all.max = fmaxf(all.max, chunk.max);
}
// One element of the output.
ZINC_DEVICE float merge_value(float all, float chunk, float old_scale, float new_scale) {
  return fmaf(all, old_scale, chunk * new_scale);
}

// The attention sink takes part in the softmax and has no value.
ZINC_DEVICE float factor_with_sink(SoftmaxState all, float sink) {
  float old_scale, new_scale;
  merge_softmax(all, {sink, 1.0f}, old_scale, new_scale);
  return old_scale / all.sum;
}
ZINC_DEVICE float final_factor(SoftmaxState all, const float* sinks, int head) {
  return sinks ? factor_with_sink(all, sinks[head]) : 1.0f / all.sum;
}

}  // namespace zinc::simt
