// Heads on their way into attention (normed, turned, written to the cache), and results of chunks on their way out.
#pragma once

#include "backend/simt/kv_pages.h"

namespace zinc::simt {

// The warp's 32 numbers from `block * 32` on, of a key or value head at `row` of a page.
template <class Kv>
ZINC_DEVICE void write_block(const KvLayer& kv, u8* keys, bool is_key, int row, int block, float x) {
  const int i = block * 32 + lane_id();
  if (is_key) {
    u8* at = keys + (i / Kv::kPieceElems * kPagePositions + row) * 16 + i % Kv::kPieceElems * Kv::kElemBytes;
    Kv::write(at, keys + kv.k_dim * kPagePositions + (block * kPagePositions + row) * Kv::kScaleBytes, x);
  } else {
    u8* values = keys + kv.value_begin;
    u8* at = values + (row * padded(kv.v_dim) + i) * Kv::kElemBytes;
    Kv::write(at, values + kv.v_dim * kPagePositions + (row * (kv.v_dim / 32) + block) * Kv::kScaleBytes, x);
  }
}

ZINC_DEVICE u8* keys_at(const Step& step, const KvLayer& kv, int t, int head) {
  return head_of(kv, page_of(step, kv.group, step.seq_of_token[t], step.positions[t]), head);
}

inline constexpr int kMaxHeadDim = 2 * kSegmentElems;

// A warp's head: normed and turned, in shared memory, zero up to a whole number of 32.
ZINC_DEVICE void prepare_head(const HeadPart& part, long long t, int head, float* values) {
  const float* from = part.x + (t * part.n_heads + head) * part.stride;
  float factor = 1;
  if (part.is_normed) {
    float sum = 0;  // segment after segment, as norm_rows has it
    for (int at = 0; at < part.dim; at += kSegmentElems) {
      sum += lanes_sum(squares(load_eight(from, at + lane_id() * 8, part.dim), 0), 32);
    }
    factor = rms_factor(sum, part.dim, part.eps);
  }
  for (int at = lane_id() * 8; at < padded(part.dim); at += kSegmentElems) {
    Eight x = load_eight(from, at, part.dim);
    if (part.is_normed) x = normed(x, factor, part.norm_weight, at, part.dim);
    store_eight(values, at, padded(part.dim), x);
  }
  __syncwarp();
  for (int i = lane_id(); part.table && i < part.n_pairs; i += 32) {
    const float* turn = part.table + 2 * (t * part.n_pairs + i);
    const int first = part.adjacent ? 2 * i : i, second = part.adjacent ? 2 * i + 1 : i + part.n_pairs;
    const float a = values[first], b = values[second];
    values[first] = a * turn[0] - b * turn[1];
    values[second] = a * turn[1] + b * turn[0];
  }
  __syncwarp();
}

// A warp's head goes to the cache.
template <class Kv>
ZINC_DEVICE void write_head(const Step& step, const KvLayer& kv, int t, int head, bool is_key, const float* values) {
  u8* keys = keys_at(step, kv, t, head);
  for (int block = 0; block < padded(is_key ? kv.k_dim : kv.v_dim) / 32; ++block) {
    write_block<Kv>(kv, keys, is_key, step.positions[t] % kPagePositions, block, values[block * 32 + lane_id()]);
  }
}

// One number of a row: its chunks in order. Read past the first-level cache: other blocks may just have written them.
ZINC_DEVICE float merge_row(const AttentionParams& p, const float* chunks, int n_chunks, int head, int dim) {
  constexpr int kAtOnce = 8;  // loads under way
  const int width = p.kv.v_dim + 2;
  Running all = {lowest_score(), 0.0f};
  float result = 0;
  for (int first = 0; first < n_chunks; first += kAtOnce) {
    float largest[kAtOnce], sum[kAtOnce], value[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float* chunk = chunks + static_cast<long long>(min(first + i, n_chunks - 1)) * width;
      largest[i] = first + i < n_chunks ? __ldcg(chunk) : lowest_score();
      sum[i] = __ldcg(chunk + 1);
      value[i] = __ldcg(chunk + 2 + dim);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (largest[i] == lowest_score()) continue;
      float keep, take;
      merge(all, {largest[i], sum[i]}, keep, take);
      result = merged(result, value[i], keep, take);
    }
  }
  return result * final_factor(all, p.sinks, head);
}

// Whether this block is the last of n to come here; it then sees what the others wrote before.
ZINC_DEVICE bool is_last_of(int* n_done, int n) {
  __shared__ int is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = add_one(n_done) == n - 1;
    if (is_last) *n_done = 0;
  }
  __syncthreads();
  return is_last;
}

}  // namespace zinc::simt
