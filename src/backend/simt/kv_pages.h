// How keys and values lie in pages, and how results over different positions are merged.
// A head's keys in a page are a panel of 32 positions in pieces of 16 bytes, so that a lane is a position; its values
// are rows.
#pragma once

#include "backend/simt/rounding.h"

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
  static ZINC_DEVICE void write(u8* at, u8*, float x) { *reinterpret_cast<float*>(at) = x; }
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
  static ZINC_DEVICE void write(u8* at, u8*, float x) { *reinterpret_cast<u16*>(at) = float_to_half(x); }
};

// Four signed bytes and their scale, twice, as halves.
ZINC_DEVICE uint2 scaled_halves(u32 bytes, u32 scales) {
  // 1024 + (byte + 128) as a half is 0x64 in the upper byte; less 1152 it is the byte, exactly.
  const u32 shifted = bytes ^ 0x80808080u;
  uint2 out = {__byte_perm(shifted, 0x64646464u, 0x4140u), __byte_perm(shifted, 0x64646464u, 0x4342u)};
  out.x = multiply_pairs(subtract_pairs(out.x, 0x64806480u), scales);
  out.y = multiply_pairs(subtract_pairs(out.y, 0x64806480u), scales);
  return out;
}

// The largest magnitude of a block that four lanes share.
ZINC_DEVICE float largest_of_four(const Eight& x) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(x.v[i]));
  return lanes_max(largest, 4);
}

// Signed bytes, then the f16 scales of each 32: keys' by position, values' by row.
struct KvQ8 {
  using Scale = u16;
  static constexpr int kPieceElems = 16, kElemBytes = 1, kScaleBytes = 2;
  static ZINC_DEVICE float element(const uint4& p, int k) {
    const u32 word = k / 4 == 0 ? p.x : k / 4 == 1 ? p.y : k / 4 == 2 ? p.z : p.w;
    return static_cast<float>(static_cast<signed char>(word >> 8 * (k % 4) & 255u));
  }
  static ZINC_DEVICE float key_scale(const u8* keys, int k_dim, int position, int block) {
    return half_to_float(
        reinterpret_cast<const u16*>(keys + k_dim * kPagePositions)[block * kPagePositions + position]);
  }
  static ZINC_DEVICE float4 values(const u8* rows, int v_dim, int position, int i) {
    const u32 v = *reinterpret_cast<const u32*>(rows + position * v_dim + i);
    const u16* scales = reinterpret_cast<const u16*>(rows + v_dim * kPagePositions);
    const float scale = half_to_float(scales[position * (v_dim / 32) + i / 32]);
    const auto byte = [&](int b) { return static_cast<float>(static_cast<signed char>(v >> 8 * b & 255u)) * scale; };
    return make_float4(byte(0), byte(1), byte(2), byte(3));
  }
  // A warp's block of 32 has one scale, d; the quotients are rounded half away from zero, as Q8_0 is.
  static ZINC_DEVICE float quotient(float x, float& d) {
    d = lanes_max(fabsf(x), 32) / 127.0f;
    return whole(x * (d != 0.0f ? 1.0f / d : 0.0f));
  }
  static ZINC_DEVICE float whole(float x) {
    const float q = roundf(x);
    return fabsf(q) <= 127.0f ? q : 0.0f;
  }
  static ZINC_DEVICE void write(u8* at, u8* scale_at, float x) {
    float d;
    *reinterpret_cast<signed char*>(at) = static_cast<signed char>(quotient(x, d));
    if (lane_id() == 0) *reinterpret_cast<u16*>(scale_at) = float_to_half(d);
  }
  // Eight numbers of a lane, a block of four lanes.
  static ZINC_DEVICE uint2 bytes(const Eight& x, u16& scale) {
    const float d = largest_of_four(x) / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    scale = float_to_half(d);
    u32 words[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      words[i / 4] |= (static_cast<u32>(static_cast<int>(whole(x.v[i] * inverse))) & 255u) << 8 * (i % 4);
    }
    return make_uint2(words[0], words[1]);
  }
  static ZINC_DEVICE uint4 halves(uint2 bytes, u16 scale) {
    const u32 scales = scale | static_cast<u32>(scale) << 16;
    const uint2 a = scaled_halves(bytes.x, scales), b = scaled_halves(bytes.y, scales);
    return make_uint4(a.x, a.y, b.x, b.y);
  }
};

// E4M3 numbers, then the power of two of each 32 as a byte, a float's exponent: keys' by position, values' by row. The
// exponent stays where a number is exactly a half (tensor/format/fp8.cc).
struct KvFp8 {
  using Scale = u8;
  static constexpr int kPieceElems = 16, kElemBytes = 1, kScaleBytes = 1;
  static ZINC_DEVICE float power(u32 exponent) { return __uint_as_float(exponent << 23); }
  static ZINC_DEVICE float element(const uint4& p, int k) {
    const u32 word = k / 4 == 0 ? p.x : k / 4 == 1 ? p.y : k / 4 == 2 ? p.z : p.w;
    return low_half(e4m3_to_halves(static_cast<u16>(word >> 8 * (k % 4) & 255u)));
  }
  static ZINC_DEVICE float key_scale(const u8* keys, int k_dim, int position, int block) {
    return power(keys[k_dim * kPagePositions + block * kPagePositions + position]);
  }
  static ZINC_DEVICE float4 values(const u8* rows, int v_dim, int position, int i) {
    const u32 v = *reinterpret_cast<const u32*>(rows + position * v_dim + i);
    const float scale = power(rows[v_dim * kPagePositions + position * (v_dim / 32) + i / 32]);
    const u32 a = e4m3_to_halves(static_cast<u16>(v)), b = e4m3_to_halves(static_cast<u16>(v >> 16));
    return make_float4(low_half(a) * scale, high_half(a) * scale, low_half(b) * scale, high_half(b) * scale);
  }
  static ZINC_DEVICE u32 exponent_for(float largest) {
    constexpr u32 kLeast = 127 - 14, kMost = 127 + 7;
    return min(max((__float_as_uint(largest) + 0x1FFFFFu) >> 23, kLeast + 8), kMost + 8) - 8;
  }
  static ZINC_DEVICE float number(float x) { return isnan(x) ? 0.0f : x; }
  static ZINC_DEVICE void write(u8* at, u8* scale_at, float x) {
    const u32 exponent = exponent_for(lanes_max(fabsf(x), 32));
    *at = static_cast<u8>(floats_to_e4m3(number(x) * power(254 - exponent), 0.0f));
    if (lane_id() == 0) *scale_at = static_cast<u8>(exponent);
  }
  static ZINC_DEVICE uint2 bytes(const Eight& x, u8& scale) {
    const u32 exponent = exponent_for(largest_of_four(x));
    const float inverse = power(254 - exponent);
    scale = static_cast<u8>(exponent);
    const auto pair = [&](int i) {
      return static_cast<u32>(floats_to_e4m3(number(x.v[i]) * inverse, number(x.v[i + 1]) * inverse));
    };
    return make_uint2(pair(0) | pair(2) << 16, pair(4) | pair(6) << 16);
  }
  static ZINC_DEVICE uint4 halves(uint2 bytes, u8 scale) {
    const u32 scales = (scale - 112u) * 0x04000400u;  // a half's exponent, twice
    const auto pair = [&](u32 two) { return multiply_pairs(e4m3_to_halves(static_cast<u16>(two)), scales); };
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

// The page that holds `position` of sequence `seq`.
ZINC_DEVICE int page_of(const Step& step, int group, int seq, int position) {
  const int column = position / kPagePositions - step.first_column[group * step.max_seqs + seq];
  const int* entries = step.counts + step.counts[kEntries + group];
  return entries[seq * step.counts[kStride + group] + column];
}

ZINC_DEVICE u8* head_of(const KvLayer& kv, int page, int head) {
  return kv.pages + page * kv.page_bytes + static_cast<long long>(head) * kv.head_bytes;
}

struct Running {
  float largest, sum;
};

ZINC_DEVICE float lowest_score() { return __int_as_float(0xFF800000); }

// How much a result so far and a chunk's count when merged. REQUIRES: the chunk saw something.
ZINC_DEVICE void merge(Running& all, const Running& chunk, float& keep, float& take) {
  const float above = all.largest - chunk.largest, less = expf(-fabsf(above));
  keep = above < 0 ? less : 1.0f;  // the larger one counts in full
  take = above < 0 ? 1.0f : less;
  all.sum = fmaf(all.sum, keep, chunk.sum * take);
  all.largest = fmaxf(all.largest, chunk.largest);
}
ZINC_DEVICE float merged(float all, float chunk, float keep, float take) { return fmaf(all, keep, chunk * take); }

// The sink takes part in the softmax and has no value.
ZINC_DEVICE float factor_with_sink(Running all, float sink) {
  float keep, take;
  merge(all, {sink, 1.0f}, keep, take);
  return keep / all.sum;
}
ZINC_DEVICE float final_factor(Running all, const float* sinks, int head) {
  return sinks ? factor_with_sink(all, sinks[head]) : 1.0f / all.sum;
}

}  // namespace zinc::simt
