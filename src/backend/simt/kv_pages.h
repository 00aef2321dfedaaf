// How keys and values lie in pages, and how results over different positions are merged.
// A head's keys in a page are a panel of 32 positions in pieces of 16 bytes, so that a lane is a position; its values
// are rows.
#pragma once

#include "backend/simt/rounding.h"

namespace zinc::simt {

struct KvF32 {
  static constexpr int kPieceElems = 4, kElemBytes = 4;
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
  static constexpr int kPieceElems = 8, kElemBytes = 2;
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

// Signed bytes, then the f16 scales of each 32: keys' by position, values' by row.
struct KvQ8 {
  static constexpr int kPieceElems = 16, kElemBytes = 1;
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

// Brings n_bytes nearer, before they are needed. REQUIRES: multiples of 16.
ZINC_DEVICE void fetch_bulk(const void* at, int n_bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(n_bytes));
#endif
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
ZINC_DEVICE float final_factor(Running all, const float* sinks, int head) {
  if (!sinks) return 1.0f / all.sum;
  float keep, take;
  merge(all, {sinks[head], 1.0f}, keep, take);
  return keep / all.sum;
}

}  // namespace zinc::simt
