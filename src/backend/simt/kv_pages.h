// The pages of the KV cache, and the merge of softmax partials. A head's keys in a page are a panel of 32 positions in
// pieces of 16 bytes, one lane per position; its values are rows. Scales of quantized elements follow them.
// A file of kv_format/ defines `Kv`: kBits and kPieceElems (elements of a piece), how an element is read and written,
// whether keys and queries are transformed (kTransformsKeys), and for quantized formats (a scale per 32 elements) the
// types of 8 and 16 elements and their conversion to f16.
#pragma once

#include "backend/simt/quantize.h"

namespace zinc::simt {

// The Hadamard transform of blocks of 32 elements (tensor/hadamard.h), spread over lanes as 1, 2 or 8 elements each.
// REQUIRES: all lanes call.
template <int n>
ZINC_DEVICE void hadamard_32(float (&x)[n], float factor) {
#pragma unroll
  for (int step = 1; step < n; step *= 2) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if (i & step) continue;
      const float a = x[i], b = x[i + step];
      x[i] = a + b;
      x[i + step] = a - b;
    }
  }
#pragma unroll
  for (int step = 1; step < 32 / n; step *= 2) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, x[i], step);
      x[i] = lane_id() & step ? other - x[i] : x[i] + other;
    }
  }
#pragma unroll
  for (int i = 0; i < n; ++i) x[i] *= factor;
}
inline constexpr float kKeyFactor = 0.25f, kQueryFactor = 0.125f;  // of hadamard_32
template <class Kv, int n>
ZINC_DEVICE void transform_key(float (&x)[n]) {
  if constexpr (Kv::kTransformsKeys) hadamard_32(x, kKeyFactor);
}
template <class Kv, int n>
ZINC_DEVICE void transform_query(float (&x)[n]) {
  if constexpr (Kv::kTransformsKeys) hadamard_32(x, kQueryFactor);
}

// Absolute maximum of a block spread over four lanes.
ZINC_DEVICE float amax_of_4_lanes(const Vec8& x) {
  float amax = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = fmaxf(amax, fabsf(x.v[i]));
  return warp_max(amax, 4);
}

// Byte offset of element i of a key, or of a value of `dim` elements, at a position of a page; and of the scales.
template <class Kv>
ZINC_DEVICE int key_offset(int position, int i) {
  const u32 element = static_cast<u32>(i);  // unsigned: cheaper division
  return static_cast<int>((element / Kv::kPieceElems * kPageTokens + static_cast<u32>(position)) * 16 +
                          element % Kv::kPieceElems * Kv::kBits / 8);
}
template <class Kv>
ZINC_DEVICE int bytes_of(int n_elems) {
  if constexpr (Kv::kBits >= 8) return n_elems * (Kv::kBits / 8);
  return static_cast<int>(static_cast<u32>(n_elems) / (8 / Kv::kBits));
}
template <class Kv>
ZINC_DEVICE int value_offset(int position, int dim, int i) {
  return bytes_of<Kv>(position * dim + i);
}
// The i-th group of n elements of a key, and the group at element i of a value, in whole bytes. The divisions and the
// order of the additions are those with which attention_mma does not spill (launched_programs_test).
template <class Kv, int n>
ZINC_DEVICE const u8* key_group(const u8* keys, int position, int i) {
  constexpr int kGroups = Kv::kPieceElems / n;  // per piece
  const int piece = Kv::kBits < 8 ? static_cast<int>(static_cast<u32>(i) / kGroups) : i / kGroups;
  return keys + (piece * kPageTokens + position) * 16 + (i - piece * kGroups) * bytes_of<Kv>(n);
}
template <class Kv>
ZINC_DEVICE const u8* value_group(const u8* values, int position, int dim, int i) {
  return values + bytes_of<Kv>(position * dim) + bytes_of<Kv>(i);
}
template <class Kv>
ZINC_DEVICE int scales_offset(int dim) {
  return dim * kPageTokens / 8 * Kv::kBits;
}

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

// Applies the output gate to an element of a head's result. act: a compile-time constant saves registers.
ZINC_DEVICE float apply_gate(const AttentionParams& p, int act, long long token, int head, int dim, float x) {
  return p.gate ? gated(act, p.gate[(token * p.n_heads + head) * p.gate_stride + dim], x) : x;
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
