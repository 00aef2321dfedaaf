// Attention on matrix cores: prompts, where a block loops over the positions of its rows, and steps of few tokens,
// where many blocks share a row's chunks. Both are made of the units of attention_mma.h, so they agree to the bit.
// A program of this file begins with kShape: what it is compiled for.
#include "backend/simt/attention_mma.h"

namespace zinc::simt {

// Some consecutive tokens of one sequence, some heads that share keys.
struct Rows {
  int seq, first_token, n_tokens, kv_head, first_head, n_heads, n_rows, first_position;
  ZINC_DEVICE int token(int row) const { return first_token + row / n_heads; }
  ZINC_DEVICE int head(int row) const { return first_head + row % n_heads; }
  ZINC_DEVICE int position(int row) const { return first_position + min(row, n_rows - 1) / n_heads; }
  // Positions that any row sees.
  ZINC_DEVICE int oldest(int window) const { return window > 0 ? max(0, first_position - window + 1) : 0; }
  ZINC_DEVICE int last() const { return first_position + n_tokens - 1; }
};

ZINC_DEVICE Rows find_rows(const AttentionParams& p, int first_token, int end) {
  const int group_heads = p.n_heads / p.kv.kv_heads, tiles = (group_heads + p.heads_per_tile - 1) / p.heads_per_tile;
  const int head_in_group = static_cast<int>(blockIdx.x) % tiles * p.heads_per_tile;
  Rows rows;
  rows.seq = p.step.seq_of_token[first_token];
  rows.first_token = first_token;
  rows.n_tokens = min(end, p.step.seq_begin[rows.seq + 1]) - first_token;
  rows.kv_head = static_cast<int>(blockIdx.x) / tiles;
  rows.first_head = rows.kv_head * group_heads + head_in_group;
  rows.n_heads = min(p.heads_per_tile, group_heads - head_in_group);
  rows.n_rows = rows.n_tokens * rows.n_heads;
  rows.first_position = p.step.positions[first_token];
  return rows;
}

// Shared memory of a block: floats of `keep`, then queries, weights and exchange of each group's R sets of rows, and
// room for a unit.
template <int G, int R>
struct UnitRoom {
  float* keep;
  u32 *q, *weights;
  float* exchange;
  u8* unit;
  ZINC_DEVICE UnitRoom(const AttentionParams& p, float4* shared, int keep_floats, int n_rows) {
    constexpr int kSets = kWarps / G * R;
    keep = reinterpret_cast<float*>(shared);
    q = reinterpret_cast<u32*>(keep + keep_floats);
    weights = q + n_rows * query_stride(p.kv.k_dim);
    exchange = reinterpret_cast<float*>(weights + kSets * kUnitRows * (kWeightStride / 2));
    unit = reinterpret_cast<u8*>(exchange + kSets * 2 * G * 16);
  }
  ZINC_DEVICE void load_queries(const AttentionParams& p, const Rows& rows, int n_rows) const {
    const int stride = query_stride(p.kv.k_dim), pairs = padded(p.kv.k_dim) / 2;
    for (int i = static_cast<int>(threadIdx.x); i < n_rows * pairs; i += kThreads) {
      const int row = min(i / pairs, rows.n_rows - 1);  // rows past the last repeat it
      const long long at = static_cast<long long>(rows.token(row)) * p.n_heads + rows.head(row);
      store_query(q + i / pairs * stride, p.q + at * p.kv.k_dim, p.kv.k_dim, i % pairs);
    }
  }
  // One of the group's sets of rows, from `first_row` on.
  ZINC_DEVICE UnitRows rows(const AttentionParams& p, const Rows& rows, int first_row, int set) const {
    const int group = warp_id() / G, its_set = group * R + set;
    UnitRows out;
    out.q_stride = query_stride(p.kv.k_dim);
    out.q = q + first_row * out.q_stride;
    out.weights = weights + its_set * kUnitRows * (kWeightStride / 2);
    out.exchange = exchange + its_set * 2 * G * 16;
    out.group = group;
    for (int h = 0; h < 2; ++h) out.newest[h] = rows.position(first_row + lane_id() / 4 + 8 * h);
    out.oldest = p.window > 0 ? max(0, rows.position(first_row) - p.window + 1) : 0;
    out.first = rows.position(first_row);
    out.last = rows.position(first_row + kUnitRows - 1);
    out.scale = p.scale;
    out.softcap = p.softcap;
    out.window = p.window;
    return out;
  }
};

// What a lane has of its rows' results over all chunks so far, beside a unit and a chunk: in registers, or, where a
// warp has the scores of many positions, in shared memory.
template <int R, bool in_registers>
struct Total {
  UnitResult all[R];
  ZINC_DEVICE explicit Total(float*) {
#pragma unroll
    for (int r = 0; r < R; ++r) clear(all[r]);
  }
  ZINC_DEVICE void add(int r, const UnitResult& chunk) { merge_results(all[r], chunk); }
  ZINC_DEVICE void load(int r, UnitResult& out) const { out = all[r]; }
};
template <int R>
struct Total<R, false> {
  float* room;
  ZINC_DEVICE explicit Total(float* its_room) : room(its_room + threadIdx.x) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int i = 0; i < 36; ++i) at(r, i) = i < 32 || i % 2 == 1 ? 0.0f : lowest_score();
    }
  }
  ZINC_DEVICE float& at(int r, int i) const { return room[(r * kTotalFloats + i) * kThreads]; }
  ZINC_DEVICE void add(int r, const UnitResult& chunk) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (chunk.row[h].largest == lowest_score()) continue;
      Running all = {at(r, 32 + 2 * h), at(r, 33 + 2 * h)};
      float keep, take;
      merge(all, chunk.row[h], keep, take);
      at(r, 32 + 2 * h) = all.largest;
      at(r, 33 + 2 * h) = all.sum;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int t = i / 2, e = 2 * h + i % 2;
        at(r, t * 4 + e) = merged(at(r, t * 4 + e), chunk.values[t][e], keep, take);
      }
    }
  }
  ZINC_DEVICE void load(int r, UnitResult& out) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) out.row[h] = {at(r, 32 + 2 * h), at(r, 33 + 2 * h)};
#pragma unroll
    for (int i = 0; i < 32; ++i) out.values[i / 4][i % 4] = at(r, i);
  }
};

// The unit's values, weighed by all sets of rows and merged into their chunks, some dimensions at a time. A lane names
// the rows of matrices so that the terms are in the places of weigh_sixteen(); its results are dimensions 8 t + 2 i and
// 8 t + 2 i + 1 of the warp's 64. What lies behind a row's last number is multiplied, and not written. `next`: the
// unit's rows.
template <int G, int R>
ZINC_DEVICE void weigh_and_merge(const UnitRows (&rows)[R], const InShared& source, int v_dim, int member,
                                 UnitResult (&all)[R], Running (&next)[R][2]) {
  const int quad = lane_id() / 4, i = lane_id() % 4, row = lane_id() % 8;
  float keep[R][2], take[R][2];
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* sums = rows[r].exchange + G * 16 + quad + 8 * h;
      next[r][h].sum = sums[0];
#pragma unroll
      for (int w = 1; w < G; ++w) next[r][h].sum += sums[w * 16];
      if (next[r][h].largest != lowest_score()) merge(all[r].row[h], next[r][h], keep[r][h], take[r][h]);
    }
  }
  if (member * kUnitDims >= v_dim) return;
  const u8* first = source.value_at(row / 2 * 4 + lane_id() / 8 % 2 * 2 + row % 2,  //
                                    member * kUnitDims + lane_id() / 16 * 8);
  constexpr int kDims = total_in_registers(G) ? 16 : 32;  // at a time
#pragma unroll
  for (int d = 0; d < kUnitDims; d += kDims) {
    float values[R][kDims / 8][4];
#pragma unroll
    for (int r = 0; r < R; ++r) clear(values[r]);
#pragma unroll 2
    for (int k = 0; k < kUnitPositions / 16; ++k) {
      uint4 v[kDims / 16];
#pragma unroll
      for (int t = 0; t < kDims / 16; ++t) v[t] = load_turned(first + k * 16 * source.value_stride + d * 2 + t * 32);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const u32* weights = rows[r].weights + quad * (kWeightStride / 2) + k * 8 + 2 * i;
        const uint2 a = *reinterpret_cast<const uint2*>(weights);
        const uint2 b = *reinterpret_cast<const uint2*>(weights + 8 * (kWeightStride / 2));
#pragma unroll
        for (int t = 0; t < kDims / 16; ++t) {
          multiply_halves(values[r][2 * t], a.x, b.x, a.y, b.y, v[t].x, v[t].y);
          multiply_halves(values[r][2 * t + 1], a.x, b.x, a.y, b.y, v[t].z, v[t].w);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int e = 0; e < kDims / 2; ++e) {
        const int h = e % 4 / 2;
        if (next[r][h].largest == lowest_score()) continue;
        float& value = all[r].values[d / 8 + e / 4][e % 4];
        value = merged(value, values[r][e / 4][e % 4], keep[r][h], take[r][h]);
      }
    }
  }
}

// Where a set of rows goes, scaled by their sums.
ZINC_DEVICE void write_rows(const AttentionParams& p, const Rows& tile, const UnitResult& all, int first_row,
                            int member) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + lane_id() / 4 + 8 * h;
    if (row >= tile.n_rows) continue;
    const float factor = final_factor(all.row[h], p.sinks, tile.head(row));
    float* out = p.out + (static_cast<long long>(tile.token(row)) * p.n_heads + tile.head(row)) * p.kv.v_dim;
#pragma unroll
    for (int e = 0; e < 16; ++e) {
      const int dim = member * kUnitDims + e / 2 * 8 + lane_id() % 4 * 2 + e % 2;
      if (dim < p.kv.v_dim) out[dim] = all.values[e / 2][2 * h + e % 2] * factor;
    }
  }
}

// All groups go from unit to unit together: keys of the next one come while this one's values are weighed, its values
// while the next one's scores are found.
template <class Kv, int G, int R>
ZINC_DEVICE void attend_tile(const AttentionParams& p, const Rows& tile, const UnitRoom<G, R>& room) {
  const int first_row = warp_id() / G * R * kUnitRows, member = warp_id() % G;
  UnitRows rows[R];
#pragma unroll
  for (int r = 0; r < R; ++r) rows[r] = room.rows(p, tile, first_row + r * kUnitRows, r);
  const bool has_rows = first_row < tile.n_rows;
  const InShared source(room.unit, p.kv);
  const auto pages_of = [&](int unit) {
    return UnitPages(p.step, p.kv, tile.seq, tile.kv_head, min(unit, tile.last() / kUnitPositions),
                     tile.oldest(p.window), tile.last());
  };
  Total<R, total_in_registers(G)> total(room.keep);
  UnitResult chunk[R];
#pragma unroll
  for (int r = 0; r < R; ++r) clear(chunk[r]);
  int unit = tile.oldest(p.window) / kUnitPositions;
  const int last_seen = rows[R - 1].last / kUnitPositions;  // by the group
  UnitPages pages = pages_of(unit);
  source.copy_keys<Kv>(pages, p.kv);
#pragma unroll 1
  for (; unit <= tile.last() / kUnitPositions; ++unit) {
    const bool sees = has_rows && unit >= rows[0].oldest / kUnitPositions && unit <= last_seen;
    float scores[R][8 / G][4];
    Running one[R][2];
    wait_for_copies<0>();  // the keys; and the values before have been read
    source.copy_values<Kv>(pages, p.kv);
    pages = pages_of(unit + 1);
    if (sees) {
      score_unit<G>(rows, source, padded(p.kv.k_dim) / 32, member, scores);
#pragma unroll
      for (int r = 0; r < R; ++r) mask_unit<G>(rows[r], unit, member, scores[r]);
    }
    __syncthreads();
    source.copy_keys<Kv>(pages, p.kv);
    if (sees) {
#pragma unroll
      for (int r = 0; r < R; ++r) soften_unit<G>(rows[r], member, scores[r], one[r]);
    }
    wait_for_copies<1>();  // the values
    if (!sees) continue;
    weigh_and_merge<G>(rows, source, padded(p.kv.v_dim), member, chunk, one);
    if (unit % kChunkUnits == kChunkUnits - 1 || unit == last_seen) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        total.add(r, chunk[r]);
        clear(chunk[r]);
      }
    }
  }
  await_copies<0>();  // keys behind the last unit: the next tile copies to the same places
  if (!has_rows) return;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    total.load(r, chunk[r]);
    write_rows(p, tile, chunk[r], first_row + r * kUnitRows, member);
  }
}

// Grid: tiles of heads, tiles of tokens; those with the most positions first.
template <class Kv, int G, int R>
ZINC_DEVICE void attend_rows(const AttentionParams& p) {
  constexpr int kRows = kWarps / G * R * kUnitRows;
  extern __shared__ float4 shared[];
  let_next_start();
  wait_for_previous();
  const int n_tokens = p.step.counts[kTokens], n_tiles = (n_tokens + p.tokens_per_tile - 1) / p.tokens_per_tile;
  const int first = (n_tiles - 1 - static_cast<int>(blockIdx.y)) * p.tokens_per_tile;
  if (first < 0) return;
  const UnitRoom<G, R> room(p, shared, total_in_registers(G) ? 0 : R * kTotalFloats * kThreads, kRows);
  const int end = min(n_tokens, first + p.tokens_per_tile);
  __shared__ Rows tile;            // not in registers: few places need it
  for (int t = first; t < end;) {  // tokens of one sequence at a time
    if (threadIdx.x == 0) tile = find_rows(p, t, end);
    __syncthreads();
    t += tile.n_tokens;
    room.load_queries(p, tile, kRows);
    __syncthreads();
    attend_tile<Kv, G, R>(p, tile, room);
    __syncthreads();
  }
}

// Grid: tiles of up to 16 heads, tokens, splits of the chunks.
template <class Kv, int G>
ZINC_DEVICE void attend_few(const AttentionParams& p) {
  extern __shared__ float4 shared[];
  let_next_start();
  wait_for_previous();
  const int token = static_cast<int>(blockIdx.y);
  if (token >= p.step.counts[kTokens]) return;
  const UnitRoom<G, 1> room(p, shared, kChunkRoom<G>, kUnitRows);
  const Rows tile = find_rows(p, token, token + 1);
  room.load_queries(p, tile, kUnitRows);
  __syncthreads();
  const UnitRows rows = room.rows(p, tile, 0, 0);
  const int first = rows.oldest / kChunkPositions, last = rows.last / kChunkPositions;
  for (int chunk = first + static_cast<int>(blockIdx.z); chunk <= last; chunk += static_cast<int>(gridDim.z)) {
    UnitResult result;
    attend_units<Kv, G>(rows, p.step, p.kv, tile.seq, tile.kv_head, chunk, room.keep, result);
    if (warp_id() >= G) continue;
    float* out[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane_id() / 4 + 8 * h;
      const long long index = static_cast<long long>(token) * p.n_heads + tile.head(min(row, tile.n_rows - 1));
      out[h] = p.partial + (index * p.n_chunks + chunk - first) * (p.kv.v_dim + 2);
      if (row < tile.n_rows && warp_id() == 0 && lane_id() % 4 == 0) {
        out[h][0] = result.row[h].largest;
        out[h][1] = result.row[h].sum;
      }
    }
    for_each_value(result, warp_id(), p.kv.v_dim, [&](int h, int dim, float value) {
      if (lane_id() / 4 + 8 * h < tile.n_rows) out[h][2 + dim] = value;
    });
  }
}

using Kv = KvOf<kShape.kv_format>::Type;
extern "C" __global__ void __launch_bounds__(256, 1) attend_rows(__grid_constant__ const AttentionParams p) {
  attend_rows<Kv, kShape.n_warps, kShape.n_sets>(p);
}
extern "C" __global__ void __launch_bounds__(256, 1) attend_few(__grid_constant__ const AttentionParams p) {
  attend_few<Kv, kShape.n_warps>(p);
}

}  // namespace zinc::simt
