// All of attention for a step of one token: heads made ready, keys and values written, chunks attended to in units
// (attention_mma.h) and merged by the last of the blocks that share a head. A program of this file begins with kShape:
// what it is compiled for. Everything of earlier tokens, and all weights, are there before the block waits for this
// one's.
#include "backend/simt/attend_one_unit.h"
#include "backend/simt/attention_heads.h"

namespace zinc::simt {

// The results of a thread: some numbers of one row.
struct OneResult {
  struct alignas(4 * kWide) Wide {
    float v[kWide];
  };
  static constexpr bool kAllHaveRows = kWarps % kRows == 0 && kShape.group_heads % kRows == 0;
  int row, head, dim;
  bool has_row;
  float sink;  // of the head, if there are any: in the room until units are merged
  float gate[kOuts][kWide];
  Wide value[kOuts];
  int runs, values;  // places in the room, of the first unit

  ZINC_DEVICE explicit OneResult(const OneBlock& block) {
    row = warp_id() / kRowWarps;
    has_row = kAllHaveRows || row < block.n_heads;
    row = min(row, kRows - 1);
    head = block.first_head + row;
    dim = (warp_id() % kRowWarps * 32 + lane_id()) * kWide;
    const float* sinks = block.one.attention.sinks;
    if (sinks && has_row && dim == 0) block.room.sinks[row] = sinks[head];
    runs = place_of(block.room, &block.room.runs[0][row]);
    values = place_of(block.room, &block.room.values[0][row][dim]);
    for (int* place : {&head, &runs, &values}) settle(*place);
  }
  ZINC_DEVICE bool has(int k) const { return has_row && (kOuts * kTurn == kValueDim || dim + k * kTurn < kValueDim); }
  ZINC_DEVICE void load_gate(const AttendOneParams& one) {
    if constexpr (kShape.act == kNoAct) return;
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kWide; ++e) {
        if (has(k))
          gate[k][e] = __ldcg(one.gate + static_cast<long long>(head) * one.gate_stride + dim + k * kTurn + e);
      }
    }
  }

  // The units of a chunk, in order: the first one as it is. All are read at once, whether they are there or not.
  ZINC_DEVICE Running merge_units(OneRoom& room, int from, int to) {
    sink = room.sinks[row];
    Running run[kChunkUnits];
    Wide its[kChunkUnits][kOuts];
#pragma unroll
    for (int u = 0; u < kChunkUnits; ++u) {
      run[u] = in_room<Running>(room, runs + u * static_cast<int>(sizeof(Running)) * kRows);
#pragma unroll
      for (int k = 0; k < kOuts; ++k) {
        if (has(k)) its[u][k] = in_room<Wide>(room, values + u * OneUnit::kUnitGap + k * kTurn * 4);
      }
    }
    const int first = static_cast<u32>(from) % kChunkUnits, last = static_cast<u32>(to) % kChunkUnits;
    Running all = {lowest_score(), 0.0f};
#pragma unroll
    for (int u = 0; u < kChunkUnits; ++u) {
      if (u < first || u > last) continue;
      if (u == first) {
        all = run[u];
#pragma unroll
        for (int k = 0; k < kOuts; ++k) value[k] = its[u][k];
        continue;
      }
      float keep, take;
      merge(all, run[u], keep, take);
#pragma unroll
      for (int k = 0; k < kOuts; ++k) {
#pragma unroll
        for (int e = 0; e < kWide; ++e) value[k].v[e] = merged(value[k].v[e], its[u][k].v[e], keep, take);
      }
    }
    return all;
  }

  ZINC_DEVICE void write(const AttendOneParams& one, Running all) const {
    float* out = one.attention.out + head * kValueDim + dim;
    const float factor = one.attention.sinks ? factor_with_sink(all, sink) : 1.0f / all.sum;
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
      Wide x;
#pragma unroll
      for (int e = 0; e < kWide; ++e) {
        x.v[e] = value[k].v[e] * factor;
        if constexpr (kShape.act != kNoAct) x.v[e] = gated(kShape.act, gate[k][e], x.v[e]);
      }
      if (has(k)) *reinterpret_cast<Wide*>(out + k * kTurn) = x;
    }
  }

  ZINC_DEVICE void write_partial(const AttentionParams& p, int slot, Running all) const {
    float* to = p.partial + (static_cast<long long>(head) * p.n_chunks + slot) * kPartial;
    if (has_row && dim == 0) *reinterpret_cast<float2*>(to) = make_float2(all.largest, all.sum);
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
      if (has(k)) *reinterpret_cast<Wide*>(to + 4 + dim + k * kTurn) = value[k];
    }
  }

  // Chunks in order, as merge_row does it, out of the room where units were. A lane finds out how one of them counts
  // while their values are on their way. REQUIRES: nobody needs anything of the room.
  ZINC_DEVICE Running merge_chunks(const OneBlock& block, int n_chunks) {
    const AttentionParams& p = block.one.attention;
    const float* from = p.partial + static_cast<long long>(head) * p.n_chunks * kPartial;
    float* chunks = reinterpret_cast<float*>(&block.room) + row * (kBatch * kPartial);
    Running all = {lowest_score(), 0.0f};
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kWide; ++e) value[k].v[e] = 0;
    }
#pragma unroll 1
    for (int begin = 0; begin < n_chunks; begin += kBatch, from += kBatch * kPartial) {
      const int n = min(kBatch, n_chunks - begin);
      if (begin > 0) __syncthreads();
      float2 its[kScans];
#pragma unroll
      for (int s = 0; s < kScans; ++s) {
        const int c = s * 32 + lane_id();
        its[s] = make_float2(lowest_score(), 0.0f);
        if (has_row && c < n) its[s] = __ldcg(reinterpret_cast<const float2*>(from + c * kPartial));
      }
      if (has_row) copy_chunks(chunks, from, n);
#pragma unroll
      for (int s = 0; s < kScans; ++s) {
        if (s * 32 < n) find_factors(chunks + s * 32 * kPartial, n - s * 32, its[s], all.largest);
      }
      await_copies<0>();
      __syncthreads();
      add_chunks(chunks, n, all);
    }
    return all;
  }
  // The values, by the warps that share a row.
  ZINC_DEVICE void copy_chunks(float* chunks, const float* from, int n) const {
    constexpr u32 kPieces = kPartial / 4 - 1;
#pragma unroll 4
    for (u32 i = threadIdx.x % (kRowWarps * 32); i < n * kPieces; i += kRowWarps * 32) {
      const u32 at = i / kPieces * kPartial + 4 + i % kPieces * 4;
      copy_16(chunks + at, from + at);
    }
    end_copies();
  }
  // Before a chunk's values: its largest and sum, and how what came before it and it itself count. Warps that share a
  // row leave the same there.
  ZINC_DEVICE void find_factors(float* chunks, int n, float2 its, float& largest) const {
    float upto = fmaxf(largest, its.x);  // the largest up to the lane's chunk
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_up_sync(0xFFFFFFFFu, upto, step);
      if (lane_id() >= step) upto = fmaxf(upto, before);
    }
    float before = __shfl_up_sync(0xFFFFFFFFu, upto, 1);
    if (lane_id() == 0) before = largest;
    if (has_row && lane_id() < n) {
      *reinterpret_cast<float4*>(chunks + lane_id() * kPartial) =
          make_float4(its.x, its.y, expf(before - upto), expf(its.x - upto));
    }
    largest = __shfl_sync(0xFFFFFFFFu, upto, 31);
  }
  ZINC_DEVICE void add_chunks(const float* chunks, int n, Running& all) {
#pragma unroll 4
    for (int c = 0; c < n; ++c) {
      const float4 chunk = *reinterpret_cast<const float4*>(chunks + c * kPartial);  // largest, sum, keep, take
      all.sum = fmaf(all.sum, chunk.z, chunk.y * chunk.w);
#pragma unroll
      for (int k = 0; k < kOuts; ++k) {
        if (!has(k)) continue;
        const Wide its = *reinterpret_cast<const Wide*>(chunks + c * kPartial + 4 + dim + k * kTurn);
#pragma unroll
        for (int e = 0; e < kWide; ++e) value[k].v[e] = merged(value[k].v[e], its.v[e], chunk.z, chunk.w);
      }
    }
  }
};

// Grid: tiles of heads, and these for each split of the chunks; further blocks are idle.
ZINC_KERNEL_2 attend_one(__grid_constant__ const AttendOneParams one) {
  extern __shared__ float4 shared[];
  let_next_start();
  touch_params(one);
  OneRoom& room = *reinterpret_cast<OneRoom*>(shared);
  const AttentionParams& p = one.attention;
  const OneBlock block(one, room);
  if (block.split >= block.n_splits) return wait_for_previous();
  int at = -1;  // the group's unit
  if (block.group < kGroups) at = block.find_unit(block.group, block.first + block.split);
  int next = block.next_unit(at);
  int2 found = block.find_pages(at);
  if (kShape.has_keys && block.group < kGroups) block.load(at, found, block.position - 1);
  int which = block.part_of_warp();
  const OneHead head(one.parts[max(which, 0)], which <= 0 ? block.first_head + warp_id() : block.kv_head,
                     place_of(room, room.heads[min(warp_id(), kRows + 1)]));
  HeadPlace places[kSegments];
#pragma unroll
  for (int s = 0; s < kSegments; ++s) places[s].init(block, which, OneHead::at(s));
  OneUnit unit(block);
  OneResult result(block);
  const int2 found_first = found;
  found = block.find_pages(next);
  for (int* number : {&which, &at, &next, &found.x, &found.y}) settle(*number);
  if (!block.is_whole(at)) await_copies<0>();  // what is new goes between them
  __syncthreads();
  wait_for_previous();
  if (!kShape.has_keys && block.group < kGroups) block.load(at, found_first, block.position);
  if (which >= 0) {
    Eight x[kSegments];
    head.make(room, x);
#pragma unroll
    for (int s = 0; s < kSegments; ++s) places[s].put(block, x[s]);
  }
  result.load_gate(one);
  __syncthreads();
#pragma unroll 1
  for (int chunk = block.first + block.split; chunk <= block.last; chunk += block.n_splits) {
#pragma unroll 1
    while (block.chunk_of(at) == chunk) {
      unit.attend(at, next, found);
      at = next;
      if (next < 0) break;
      next = block.next_unit(next);
      found = block.find_pages(next);
    }
    __syncthreads();
    const Running all = result.merge_units(room, block.first_unit(chunk), block.last_unit(chunk));
    if (block.is_single()) {
      result.write(one, all);
      return;
    }
    result.write_partial(p, chunk - block.first, all);
    if (chunk + block.n_splits <= block.last) __syncthreads();
  }
  if (!is_last_of(one.n_done + (result.head - result.row), block.n_splits)) return;
  const Running all = result.merge_chunks(block, block.last - block.first + 1);
  result.write(one, all);
}

}  // namespace zinc::simt
