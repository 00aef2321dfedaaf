// All of attention for a step of one token: heads made ready, keys and values written, chunks attended to in units
// (attention_mma.h) and merged by the last of the blocks that share a head. A program of this file begins with kShape:
// what it is compiled for. Everything of earlier tokens is on its way before the block waits for this one's.
#include "backend/simt/attention_heads.h"
#include "backend/simt/attention_mma.h"

namespace zinc::simt {

template <int format>
struct KvOf;
template <>
struct KvOf<kKvF16> {
  using Type = KvF16;
};
template <>
struct KvOf<kKvQ8> {
  using Type = KvQ8;
};
using Kv = KvOf<kShape.kv_format>::Type;

constexpr int kKeyDim = kShape.k_dim, kValueDim = kShape.v_dim, kRows = kShape.tile_heads;
constexpr int kKeyBlocks = (kKeyDim + 31) / 32, kValueRow = (kValueDim + 31) / 32 * 32;
constexpr int kGroupWarps = warps_of_unit(kShape), kGroups = units_at_once(kShape), kTiles = 8 / kGroupWarps;
constexpr int kHeadRow = attend_head_floats(kShape), kQueryStride = kKeyBlocks * 16 + 4;

// Shared memory of a block.
struct OneRoom {
  u8 units[kGroups][unit_bytes(kKeyDim, kValueDim)];
  float heads[kRows + 2][kHeadRow];  // queries, the key, the value
  u32 q[kUnitRows * kQueryStride];   // queries as halves
  u32 weights[kGroups][kUnitRows * (kWeightStride / 2)];
  float exchange[kGroups][2 * kGroupWarps * kUnitRows];
  float values[kChunkUnits][kRows][kValueRow];  // results of units
  Running runs[kChunkUnits][kRows];
  float2 counts[kChunkUnits + 1][kRows];
};
static_assert(sizeof(OneRoom) <= attend_room_bytes(kShape));

// What a block does: some heads that share keys.
struct OneTile {
  int kv_head, first_head, n_heads, position, oldest;
};

// A warp's head, normed and turned as prepare_heads does it.
ZINC_DEVICE void prepare_one(const HeadPart& part, int head, float* values) {
  constexpr int kSegments = (kHeadRow + kSegmentElems - 1) / kSegmentElems, kTurns = kHeadRow / 64 + 1;
  const int dim = kKeyDim == kValueDim ? kKeyDim : part.dim;
  const float* from = part.x + head * part.stride;
  Eight x[kSegments];
  float2 turn[kTurns];
#pragma unroll
  for (int s = 0; s < kSegments; ++s) x[s] = load_eight(from, s * kSegmentElems + lane_id() * 8, dim);
#pragma unroll
  for (int j = 0; j < kTurns; ++j) {
    const int i = j * 32 + lane_id();
    if (part.table && i < part.n_pairs) turn[j] = reinterpret_cast<const float2*>(part.table)[i];
  }
  float factor = 1;
  if (part.is_normed) {
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      if (s * kSegmentElems < dim) sum += lanes_sum(squares(x[s], 0), 32);
    }
    factor = rms_factor(sum, dim, part.eps);
  }
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    const int at = s * kSegmentElems + lane_id() * 8;
    if (at >= padded(dim)) continue;
    if (part.is_normed) x[s] = normed(x[s], factor, part.norm_weight, at, dim);
    store_eight(values, at, padded(dim), x[s]);
  }
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kTurns; ++j) {
    const int i = j * 32 + lane_id();
    if (!part.table || i >= part.n_pairs) continue;
    const int first = part.adjacent ? 2 * i : i, second = part.adjacent ? 2 * i + 1 : i + part.n_pairs;
    const float a = values[first], b = values[second];
    values[first] = a * turn[j].x - b * turn[j].y;
    values[second] = a * turn[j].y + b * turn[j].x;
  }
  __syncwarp();
}

// Warps 0 to kRows - 1 make the queries, the next two the key and the value; blocks that share a key head write the
// same. unit: where the newest position's unit lies already; null: it comes from its pages.
ZINC_DEVICE void prepare_all(const AttendOneParams& one, const OneTile& tile, u8* page, bool has_newest, u8* unit,
                             OneRoom& room) {
  const AttentionParams& p = one.attention;
  const int warp = warp_id(), which = warp < kRows ? 0 : warp - kRows + 1;
  if (which == 0 ? warp >= tile.n_heads : !has_newest || which > 2) return;
  float* values = room.heads[warp];
  prepare_one(one.parts[which], which == 0 ? tile.first_head + warp : tile.kv_head, values);
  if (which == 0) {
    for (int pair = lane_id(); pair < kKeyBlocks * 16; pair += 32) {
      store_query(room.q + warp * kQueryStride, values, kKeyDim, pair);
    }
  } else {
    const bool is_key = which == 1;
    const int at = tile.position % kUnitPositions;
    for (int block = 0; block < (is_key ? kKeyBlocks : kValueRow / 32); ++block) {
      const int dim = block * 32 + lane_id();
      write_block<Kv>(p.kv, page, is_key, tile.position % kPagePositions, block, values[dim]);
      if (!unit) continue;
      const InShared shared(unit, p.kv);
      u8* to = is_key ? shared.key_at(at, dim / 8) + dim % 8 * 2 : shared.value_at(at, dim);
      *reinterpret_cast<u16*>(to) = Halves<Kv>::kept(values[dim]);
    }
  }
}

// Begins the copies of a unit by all threads: positions past the last known stand for it, or for nothing.
ZINC_DEVICE void load_unit(const AttentionParams& p, const OneTile& tile, int unit, int last, u8* room) {
  const InShared shared(room, p.kv);
  if (last >= max(unit * kUnitPositions, tile.oldest)) {
    const UnitPages pages(p.step, p.kv, 0, tile.kv_head, unit, tile.oldest, last);
    shared.copy_keys<Kv>(pages, p.kv);
    shared.copy_values<Kv>(pages, p.kv);
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kUnitPositions * (kValueRow / 8); i += kThreads) {
    *reinterpret_cast<uint4*>(shared.value_at(i / (kValueRow / 8), i % (kValueRow / 8) * 8)) = make_uint4(0, 0, 0, 0);
  }
}

// The units of a chunk from `first` on, as many as there is room for.
ZINC_DEVICE void load_units(const AttentionParams& p, const OneTile& tile, const UnitRows& rows, int first, int last,
                            OneRoom& room) {
#pragma unroll 1
  for (int u = 0; u < kGroups; ++u) {
    if (rows.see_some(first + u)) load_unit(p, tile, first + u, last, room.units[u]);
  }
  await_copies<0>();
  __syncthreads();
}

// One unit of all rows; its results go to the room.
ZINC_DEVICE void attend_loaded(const UnitRows& rows, const InShared& source, int unit, int member, OneRoom& room) {
  const int quad = lane_id() / 4, i = lane_id() % 4, u = unit % kChunkUnits;
  float scores[kTiles][4];
  score_unit<kGroupWarps>(rows, source, kKeyBlocks, member, scores);
  mask_unit<kGroupWarps>(rows, unit, member, scores);
  group_meets<kGroupWarps>(rows.group);
  UnitResult result;
  soften_unit<kGroupWarps>(rows, member, scores, result);
  group_meets<kGroupWarps>(rows.group);
  weigh_unit<kGroupWarps>(rows, source, kValueRow, member, result);
  if (quad < kRows) {  // only the first eight rows are used
    if (member == 0 && i == 0) room.runs[u][quad] = result.row[0];
#pragma unroll
    for (int t = 0; t < 8; ++t) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int at = member * kUnitDims + 8 * (2 * i + e) + t;
        if (at < kValueDim) room.values[u][quad][at] = result.values[t][e];
      }
    }
  }
  group_meets<kGroupWarps>(rows.group);  // keys, values and weights have been read
}

// How the units of a chunk count, in order, for the row of a thread; and at last all of it, if there is but one chunk.
ZINC_DEVICE void weigh_units(OneRoom& room, int row, bool is_single, const float* sinks, int head) {
  Running all = {lowest_score(), 0.0f};
#pragma unroll 1
  for (int u = 0; u < kChunkUnits; ++u) {
    const Running run = room.runs[u][row];
    float keep = 1, take = 0;
    if (run.largest != lowest_score()) merge(all, run, keep, take);
    room.counts[u][row] = make_float2(keep, take);
  }
  room.runs[0][row] = all;
  if (!is_single) return;
  Running only = {lowest_score(), 0.0f};
  float keep, take;
  merge(only, all, keep, take);
  room.counts[kChunkUnits][row] = make_float2(take, final_factor(only, sinks, head));
}

// One number of a row over a chunk.
ZINC_DEVICE float merge_units(const OneRoom& room, int row, int dim) {
  float value = 0;
#pragma unroll
  for (int u = 0; u < kChunkUnits; ++u) {
    const float2 count = room.counts[u][row];
    if (count.y != 0.0f) value = merged(value, room.values[u][row][dim], count.x, count.y);
  }
  return value;
}

// Grid: tiles of heads; 1; splits of the chunks.
ZINC_KERNEL_2 attend_one(__grid_constant__ const AttendOneParams one) {
  extern __shared__ float4 shared[];
  const AttentionParams& p = one.attention;
  OneRoom& room = *reinterpret_cast<OneRoom*>(shared);
  let_next_start();
  touch_params(one);
  constexpr int kTilesOfHead = (kShape.group_heads + kRows - 1) / kRows;
  OneTile tile;
  tile.kv_head = static_cast<int>(blockIdx.x) / kTilesOfHead;
  const int head_in_group = static_cast<int>(blockIdx.x) % kTilesOfHead * kRows;
  tile.first_head = tile.kv_head * kShape.group_heads + head_in_group;
  tile.n_heads = min(kRows, kShape.group_heads - head_in_group);
  tile.position = p.step.positions[0];  // what the host uploads is there before any kernel of the step
  tile.oldest = kShape.window > 0 ? max(0, tile.position - kShape.window + 1) : 0;
  const int first = tile.oldest / kChunkPositions, last = tile.position / kChunkPositions;
  const int n_splits = min(static_cast<int>(gridDim.z), last - first + 1), split = static_cast<int>(blockIdx.z);
  if (split >= n_splits) return;
  const int group = warp_id() / kGroupWarps, member = warp_id() % kGroupWarps;
  const UnitRows rows{room.q,
                      kQueryStride,
                      room.weights[group],
                      room.exchange[group],
                      group,
                      {tile.position, tile.position},
                      tile.oldest,
                      tile.position,
                      tile.position,
                      p.scale,
                      kShape.has_softcap ? p.softcap : 0.0f,
                      kShape.window};
  const int newest_unit = tile.position / kUnitPositions, first_unit = (first + split) * kChunkUnits;
  const bool has_newest = kShape.has_keys && (last - first) % n_splits == split;
  u8* page = head_of(p.kv, page_of(p.step, p.kv.group, 0, tile.position), tile.kv_head);
  if (kShape.has_keys) load_units(p, tile, rows, first_unit, tile.position - 1, room);
  const bool is_there = newest_unit >= first_unit && newest_unit < first_unit + kGroups;
  wait_for_previous();
  prepare_all(one, tile, page, has_newest, is_there ? room.units[newest_unit - first_unit] : nullptr, room);
  __syncthreads();
  const bool is_single = first == last;
  const auto write = [&](int row, int dim, float value) {
    const int head = tile.first_head + row;
    if constexpr (kShape.act != kNoAct) {
      value = gated(kShape.act, one.gate[static_cast<long long>(head) * one.gate_stride + dim], value);
    }
    p.out[head * kValueDim + dim] = value;
  };
  const auto partial = [&](int row, int slot) {
    return p.partial + (static_cast<long long>(tile.first_head + row) * p.n_chunks + slot) * (kValueDim + 2);
  };
  for (int chunk = first + split; chunk <= last; chunk += n_splits) {
#pragma unroll 1
    for (int round = 0; round < kChunkUnits; round += kGroups) {
      const int unit = chunk * kChunkUnits + round;
      if (!kShape.has_keys || unit > first_unit) {
        __syncthreads();  // all have done with the units before
        load_units(p, tile, rows, unit, tile.position, room);
      }
      if (group >= kGroups) continue;
      if (rows.see_some(unit + group)) {
        attend_loaded(rows, InShared(room.units[group], p.kv), unit + group, member, room);
      } else if (member == 0 && lane_id() < kRows) {
        room.runs[round + group][lane_id()] = {lowest_score(), 0.0f};
      }
    }
    __syncthreads();
    if (const int row = static_cast<int>(threadIdx.x); row < tile.n_heads) {
      weigh_units(room, row, is_single, p.sinks, tile.first_head + row);
      if (!is_single) {
        partial(row, chunk - first)[0] = room.runs[0][row].largest;
        partial(row, chunk - first)[1] = room.runs[0][row].sum;
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int index = static_cast<int>(threadIdx.x); index < tile.n_heads * kValueDim; index += kThreads) {
      const int row = index / kValueDim, dim = index % kValueDim;
      const float value = merge_units(room, row, dim);
      if (is_single) {
        const float2 count = room.counts[kChunkUnits][row];
        write(row, dim, merged(0.0f, value, 0.0f, count.x) * count.y);
      } else {
        partial(row, chunk - first)[2 + dim] = value;
      }
    }
    __syncthreads();
  }
  if (is_single || !is_last_of(one.n_done + blockIdx.x, n_splits)) return;
#pragma unroll 1
  for (int index = static_cast<int>(threadIdx.x); index < tile.n_heads * kValueDim; index += kThreads) {
    const int row = index / kValueDim, dim = index % kValueDim;
    write(row, dim, merge_row(p, partial(row, 0), last - first + 1, tile.first_head + row, dim));
  }
}

}  // namespace zinc::simt
