// The output of a block of attention_decode.cu or attention_units.cu: merges of KV tiles and of chunks, output gate,
// stores.
#pragma once

#include "backend/simt/attention_decode_tile.h"
#include "backend/simt/attention_heads.h"

namespace zinc::simt {

// A thread's output elements, of one row.
struct DecodeOutput {
  struct alignas(4 * kVec) Vec {
    float v[kVec];
  };
  static constexpr bool kAllHaveRows = kWarps % kRows == 0 && kShape.heads_per_kv_head % kRows == 0;
  int row, head, dim;
  bool has_row;
  float sink;  // of the head; in shared memory until tiles are merged
  float gate[kOuts][kVec];
  Vec value[kOuts];
  int softmax_states, values;  // shared memory offsets, of the first tile

  ZINC_DEVICE explicit DecodeOutput(const DecodeBlock& block) {
    const int thread = thread_of_unit();
    row = thread / 32 / kRowWarps;
    has_row = kAllHaveRows || row < block.n_heads;
    row = min(row, kRows - 1);
    head = block.first_head + row;
    dim = thread % (kRowWarps * 32) * kVec;
    const float* sinks = block.p.sinks;
    if (sinks && has_row && dim == 0) block.smem.sinks[row] = sinks[head];
    softmax_states = smem_offset(block.smem, &block.smem.softmax_states[0][row]);
    values = smem_offset(block.smem, &block.smem.values[0][row][dim]);
    if constexpr (kShape.prepares_heads) {  // units have no registers to spare
      for (int* offset : {&head, &softmax_states, &values}) keep_in_register(*offset);
    }
  }
  ZINC_DEVICE bool has(int k) const {
    return has_row && (kOuts * kOutStride == kValueDim || dim + k * kOutStride < kValueDim);
  }
  ZINC_DEVICE void load_gate(const AttentionParams& p, long long token) {
    if constexpr (kShape.act == kNoAct) return;
    const float* from = p.gate + (token * p.n_heads + head) * p.gate_stride + dim;
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        if (has(k)) gate[k][e] = __ldcg(from + k * kOutStride + e);
      }
    }
  }

  // Merges the tiles of a chunk in order; the first is taken unscaled. All kChunkTiles are loaded, valid or not.
  ZINC_DEVICE SoftmaxState merge_kv_tiles(DecodeSmem& smem, int from, int to) {
    sink = smem.sinks[row];
    SoftmaxState tile_state[kChunkTiles];
    Vec tile_value[kChunkTiles][kOuts];
#pragma unroll
    for (int tile = 0; tile < kChunkTiles; ++tile) {
      tile_state[tile] =
          smem_at<SoftmaxState>(smem, softmax_states + tile * static_cast<int>(sizeof(SoftmaxState)) * kRows);
#pragma unroll
      for (int k = 0; k < kOuts; ++k) {
        if (has(k))
          tile_value[tile][k] = smem_at<Vec>(smem, values + tile * DecodeKvTile::kTileStride + k * kOutStride * 4);
      }
    }
    const int first = static_cast<u32>(from) % kChunkTiles, last = static_cast<u32>(to) % kChunkTiles;
    SoftmaxState all = {neg_inf(), 0.0f};
#pragma unroll
    for (int tile = 0; tile < kChunkTiles; ++tile) {
      if (tile < first || tile > last) continue;
      if (tile == first) {
        all = tile_state[tile];
#pragma unroll
        for (int k = 0; k < kOuts; ++k) value[k] = tile_value[tile][k];
        continue;
      }
      float old_scale, new_scale;
      merge_softmax(all, tile_state[tile], old_scale, new_scale);
#pragma unroll
      for (int k = 0; k < kOuts; ++k) {
#pragma unroll
        for (int e = 0; e < kVec; ++e)
          value[k].v[e] = merge_value(value[k].v[e], tile_value[tile][k].v[e], old_scale, new_scale);
      }
    }
    return all;
  }

  // The left fold over chunks, `is_first` taken unscaled.
  ZINC_DEVICE void add_chunk(SoftmaxState& total, Vec (&total_value)[kOuts], SoftmaxState chunk, bool is_first) const {
    float old_scale = 0, new_scale = 1;
    if (is_first) {
      total = chunk;
    } else {
      merge_softmax(total, chunk, old_scale, new_scale);
    }
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        const float x = value[k].v[e];
        total_value[k].v[e] = is_first ? x : merge_value(total_value[k].v[e], x, old_scale, new_scale);
      }
    }
  }
  // Normalizes the result and applies the output gate.
  ZINC_DEVICE void finish(const AttentionParams& p, SoftmaxState all) {
    const float factor = p.sinks ? factor_with_sink(all, sink) : 1.0f / all.sum;
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        float& x = value[k].v[e];
        x = x * factor;
        if constexpr (kShape.act != kNoAct) x = gated(kShape.act, gate[k][e], x);
      }
    }
  }
  // to: the head's result.
  ZINC_DEVICE void write(float* to) const {
    to += dim;
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
      if (has(k)) *reinterpret_cast<Vec*>(to + k * kOutStride) = value[k];
    }
  }

  ZINC_DEVICE void write_partial(float* to, SoftmaxState all) const {
    if (has_row && dim == 0) *reinterpret_cast<float2*>(to) = make_float2(all.max, all.sum);
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
      if (has(k)) *reinterpret_cast<Vec*>(to + 4 + dim + k * kOutStride) = value[k];
    }
  }

  // Merges chunks in the order of merge_row_chunks(), through shared memory. A lane computes the scales of one chunk
  // while the values load. REQUIRES: shared memory is free.
  ZINC_DEVICE SoftmaxState merge_chunks(DecodeSmem& smem, const float* from, int n_chunks) {
    float* chunks = reinterpret_cast<float*>(&smem) + row * (kBatch * kPartial);
    SoftmaxState all = {neg_inf(), 0.0f};
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kVec; ++e) value[k].v[e] = 0;
    }
#pragma unroll 1
    for (int begin = 0; begin < n_chunks; begin += kBatch, from += kBatch * kPartial) {
      const int n = min(kBatch, n_chunks - begin);
      if (begin > 0) __syncthreads();
      float2 max_sum[kScans];
#pragma unroll
      for (int s = 0; s < kScans; ++s) {
        const int c = s * 32 + lane_id();
        max_sum[s] = make_float2(neg_inf(), 0.0f);
        if (has_row && c < n) max_sum[s] = __ldcg(reinterpret_cast<const float2*>(from + c * kPartial));
      }
      if (has_row) copy_chunks(chunks, from, n);
#pragma unroll
      for (int s = 0; s < kScans; ++s) {
        if (s * 32 < n) merge_scales(chunks + s * 32 * kPartial, n - s * 32, max_sum[s], all.max);
      }
      cp_async_wait<0>();
      __syncthreads();
      accumulate_chunks(chunks, n, all);
    }
    return all;
  }
  // Copies the values, by the warps that share a row.
  ZINC_DEVICE void copy_chunks(float* chunks, const float* from, int n) const {
    constexpr u32 kPieces = kPartial / 4 - 1;
#pragma unroll 4
    for (u32 i = threadIdx.x % (kRowWarps * 32); i < n * kPieces; i += kRowWarps * 32) {
      const u32 offset = i / kPieces * kPartial + 4 + i % kPieces * 4;
      cp_async_16(chunks + offset, from + offset);
    }
    cp_async_commit();
  }
  // Stores before each chunk's values: max, sum, and the scales of the result so far and of the chunk. Warps that share
  // a row store the same.
  ZINC_DEVICE void merge_scales(float* chunks, int n, float2 max_sum, float& max_so_far) const {
    float running_max = fmaxf(max_so_far, max_sum.x);  // up to the lane's chunk
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_up_sync(0xFFFFFFFFu, running_max, step);
      if (lane_id() >= step) running_max = fmaxf(running_max, before);
    }
    float before = __shfl_up_sync(0xFFFFFFFFu, running_max, 1);
    if (lane_id() == 0) before = max_so_far;
    if (has_row && lane_id() < n) {
      *reinterpret_cast<float4*>(chunks + lane_id() * kPartial) =
          make_float4(max_sum.x, max_sum.y, expf(before - running_max), expf(max_sum.x - running_max));
    }
    max_so_far = __shfl_sync(0xFFFFFFFFu, running_max, 31);
  }
  ZINC_DEVICE void accumulate_chunks(const float* chunks, int n, SoftmaxState& all) {
#pragma unroll 4
    for (int c = 0; c < n; ++c) {
      const float4 chunk = *reinterpret_cast<const float4*>(chunks + c * kPartial);  // max, sum, old_scale, new_scale
      all.sum = fmaf(all.sum, chunk.z, chunk.y * chunk.w);
#pragma unroll
      for (int k = 0; k < kOuts; ++k) {
        if (!has(k)) continue;
        const Vec chunk_value = *reinterpret_cast<const Vec*>(chunks + c * kPartial + 4 + dim + k * kOutStride);
#pragma unroll
        for (int e = 0; e < kVec; ++e) value[k].v[e] = merge_value(value[k].v[e], chunk_value.v[e], chunk.z, chunk.w);
      }
    }
  }
};

}  // namespace zinc::simt
