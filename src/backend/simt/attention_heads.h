// Attention's prologue (norm, RoPE and KV cache write of heads) and the merge of its split-KV partials.
#pragma once

#include "backend/simt/kv_pages.h"

namespace zinc::simt {

// Writes elements 32 * block to 32 * block + 31 of a key or value head, one per lane, to `page_offset` of a page.
template <class Kv>
ZINC_DEVICE void write_block(const KvLayer& kv, u8* keys, bool is_key, int page_offset, int block, float x) {
  const int i = block * 32 + lane_id();
  if (is_key) {
    float key[1] = {x};
    transform_key<Kv>(key);
    Kv::write(keys + key_offset<Kv>(page_offset, i),
              keys + scales_offset<Kv>(kv.k_dim) + (block * kPageTokens + page_offset) * Kv::kScaleBytes, key[0]);
  } else {
    u8* values = keys + kv.value_begin;
    Kv::write(values + value_offset<Kv>(page_offset, padded(kv.v_dim), i),
              values + scales_offset<Kv>(kv.v_dim) + (page_offset * (kv.v_dim / 32) + block) * Kv::kScaleBytes, x);
  }
}

ZINC_DEVICE u8* keys_at(const Step& step, const KvLayer& kv, int t, int head) {
  return head_of(kv, page_of(step, kv.group, step.seq_of_token[t], step.positions[t]), head);
}

inline constexpr int kMaxHeadDim = 2 * kSegmentElems;

// Norm and RoPE of a warp's head, to shared memory, zero-padded to a multiple of 32.
ZINC_DEVICE void prepare_head(const HeadInput& part, long long t, int head, float* values) {
  const float* from = part.x + (t * part.n_heads + head) * part.stride;
  float factor = 1;
  if (part.is_normed) {
    float sum = 0;  // in the summation order of norm_rows: bit-identical results
    for (int offset = 0; offset < part.dim; offset += kSegmentElems) {
      sum += warp_sum(sum_squares(load_vec8(from, offset + lane_id() * 8, part.dim), 0), 32);
    }
    factor = rms_factor(sum, part.dim, part.eps);
  }
  for (int offset = lane_id() * 8; offset < padded(part.dim); offset += kSegmentElems) {
    Vec8 x = load_vec8(from, offset, part.dim);
    if (part.is_normed) x = normed(x, factor, part.norm_weight, offset, part.dim);
    store_vec8(values, offset, padded(part.dim), x);
  }
  __syncwarp();
  for (int i = lane_id(); part.table && i < part.n_pairs; i += 32) {
    const float* cos_sin = part.table + 2 * (t * part.n_pairs + i);
    const int first = part.adjacent ? 2 * i : i, second = part.adjacent ? 2 * i + 1 : i + part.n_pairs;
    const float a = values[first], b = values[second];
    values[first] = a * cos_sin[0] - b * cos_sin[1];
    values[second] = a * cos_sin[1] + b * cos_sin[0];
  }
  __syncwarp();
}

// prepare_head() of up to 256 elements in two parts: loads of what no earlier launch of the step writes, then the rest.
struct SegmentHead {
  static constexpr int kLanePairs = kSegmentElems / 2 / 32;
  const HeadInput& part;
  const float* x;
  const float2* cos_sin;
  Vec8 weight;

  ZINC_DEVICE SegmentHead(const HeadInput& init_part, long long t, int head)
      : part(init_part),
        x(part.x + (t * part.n_heads + head) * part.stride),
        cos_sin(reinterpret_cast<const float2*>(part.table) + t * part.n_pairs),
        weight{{1, 1, 1, 1, 1, 1, 1, 1}} {
    if (part.is_normed && part.norm_weight) weight = load_vec8(part.norm_weight, lane_id() * 8, part.dim);
    keep_in_register(x);
  }
  ZINC_DEVICE void prepare(float* values) const {
    const int first = lane_id() * 8;
    Vec8 in = load_vec8(x, first, part.dim);
    float2 rotation[kLanePairs];
#pragma unroll
    for (int k = 0; k < kLanePairs; ++k) {
      if (has_pair(k)) rotation[k] = cos_sin[k * 32 + lane_id()];
    }
    if (part.is_normed) {
      const float factor = rms_factor(warp_sum(sum_squares(in, 0), 32), part.dim, part.eps);
#pragma unroll
      for (int i = 0; i < 8; ++i) in.v[i] = in.v[i] * factor * weight.v[i];
    }
    if (first < padded(part.dim)) store_vec8(values, first, padded(part.dim), in);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kLanePairs; ++k) {
      if (!has_pair(k)) continue;
      const int i = k * 32 + lane_id();
      float& a = values[part.adjacent ? 2 * i : i];
      float& b = values[part.adjacent ? 2 * i + 1 : i + part.n_pairs];
      const float before_a = a, before_b = b;
      a = before_a * rotation[k].x - before_b * rotation[k].y;
      b = before_a * rotation[k].y + before_b * rotation[k].x;
    }
    __syncwarp();
  }
  ZINC_DEVICE bool has_pair(int k) const { return part.table && k * 32 + lane_id() < part.n_pairs; }
};

// Writes a warp's head to the KV cache. keys: keys_at().
template <class Kv>
ZINC_DEVICE void write_head(const KvLayer& kv, u8* keys, bool is_key, int page_offset, const float* values) {
  for (int block = 0; block < padded(is_key ? kv.k_dim : kv.v_dim) / 32; ++block) {
    write_block<Kv>(kv, keys, is_key, page_offset, block, values[block * 32 + lane_id()]);
  }
}

// Merges the chunks of one element of a row, in order. Bypasses L1, which may be stale: other blocks wrote them.
ZINC_DEVICE float merge_row_chunks(const AttentionParams& p, const float* chunks, int n_chunks, int head, int dim) {
  constexpr int kInFlight = 8;  // loads in flight
  const int width = p.kv.v_dim + 2;
  SoftmaxState all = {neg_inf(), 0.0f};
  float result = 0;
  for (int first = 0; first < n_chunks; first += kInFlight) {
    float chunk_max[kInFlight], sum[kInFlight], value[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const float* chunk = chunks + static_cast<long long>(min(first + i, n_chunks - 1)) * width;
      chunk_max[i] = first + i < n_chunks ? __ldcg(chunk) : neg_inf();
      sum[i] = __ldcg(chunk + 1);
      value[i] = __ldcg(chunk + 2 + dim);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (chunk_max[i] == neg_inf()) continue;
      float old_scale, new_scale;
      merge_softmax(all, {chunk_max[i], sum[i]}, old_scale, new_scale);
      result = merge_value(result, value[i], old_scale, new_scale);
    }
  }
  return result * final_factor(all, p.sinks, head);
}

}  // namespace zinc::simt
