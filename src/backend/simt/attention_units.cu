// Attention on matrix cores: prompts, where a block loops over the positions of its rows, and steps of few tokens, where
// many blocks share a row's chunks. Both are made of the units of attention_mma.h, so they agree to the bit.
#include "backend/simt/attention_mma.h"

namespace zinc::simt {

// Some consecutive tokens of one sequence, some heads that share keys.
struct Rows {
  int seq, first_token, n_tokens, kv_head, first_head, n_heads, n_rows, first_position;
  ZINC_DEVICE int token(int row) const { return first_token + row / n_heads; }
  ZINC_DEVICE int head(int row) const { return first_head + row % n_heads; }
  ZINC_DEVICE int position(int row) const { return first_position + min(row, n_rows - 1) / n_heads; }
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

// Shared memory of a block: floats of `keep`, then queries, each group's weights and exchange, and room for a unit.
template <int G>
struct UnitRoom {
  float* keep;
  u32 *q, *weights;
  float* exchange;
  u8* unit;
  ZINC_DEVICE UnitRoom(const AttentionParams& p, float4* shared, int keep_floats, int n_rows) {
    constexpr int kGroups = kWarps / G;
    keep = reinterpret_cast<float*>(shared);
    q = reinterpret_cast<u32*>(keep + keep_floats);
    weights = q + n_rows * query_stride(p.kv.k_dim);
    exchange = reinterpret_cast<float*>(weights + kGroups * kUnitRows * (kWeightStride / 2));
    unit = reinterpret_cast<u8*>(exchange + kGroups * 2 * G * 16);
  }
  ZINC_DEVICE void load_queries(const AttentionParams& p, const Rows& rows, int n_rows) const {
    const int stride = query_stride(p.kv.k_dim), pairs = padded(p.kv.k_dim) / 2;
    for (int i = static_cast<int>(threadIdx.x); i < n_rows * pairs; i += kThreads) {
      const int row = min(i / pairs, rows.n_rows - 1);  // rows past the last repeat it
      const long long at = static_cast<long long>(rows.token(row)) * p.n_heads + rows.head(row);
      store_query(q + i / pairs * stride, p.q + at * p.kv.k_dim, p.kv.k_dim, i % pairs);
    }
  }
  // The group's rows, from `first_row` on.
  ZINC_DEVICE UnitRows rows(const AttentionParams& p, const Rows& rows, int first_row) const {
    const int group = warp_id() / G;
    UnitRows out;
    out.q_stride = query_stride(p.kv.k_dim);
    out.q = q + first_row * out.q_stride;
    out.weights = weights + group * kUnitRows * (kWeightStride / 2);
    out.exchange = exchange + group * 2 * G * 16;
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

// What a lane has of its rows' results over all chunks so far: too much for its registers beside a unit and a chunk.
struct Total {
  float* values;
  Running row[2];
  ZINC_DEVICE explicit Total(float* room) : values(room + threadIdx.x) {
    for (int h = 0; h < 2; ++h) row[h] = {lowest_score(), 0.0f};
    for (int i = 0; i < 32; ++i) values[i * kThreads] = 0;
  }
  ZINC_DEVICE void load(UnitResult& out) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) out.row[h] = row[h];
#pragma unroll
    for (int i = 0; i < 32; ++i) out.values[i / 4][i % 4] = values[i * kThreads];
  }
  ZINC_DEVICE void add(const UnitResult& chunk) {
    UnitResult all;
    load(all);
    merge_results(all, chunk);
#pragma unroll
    for (int h = 0; h < 2; ++h) row[h] = all.row[h];
#pragma unroll
    for (int i = 0; i < 32; ++i) values[i * kThreads] = all.values[i / 4][i % 4];
  }
};

// Where the group's rows go, scaled by their sums.
ZINC_DEVICE void write_rows(const AttentionParams& p, const Rows& tile, const UnitResult& all, int first_row,
                            int member) {
  float factor[2];
  float* out[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = min(first_row + lane_id() / 4 + 8 * h, tile.n_rows - 1);
    factor[h] = final_factor(all.row[h], p.sinks, tile.head(row));
    out[h] = p.out + (static_cast<long long>(tile.token(row)) * p.n_heads + tile.head(row)) * p.kv.v_dim;
  }
  for_each_value(all, member, p.kv.v_dim, [&](int h, int dim, float value) {
    if (first_row + lane_id() / 4 + 8 * h < tile.n_rows) out[h][dim] = value * factor[h];
  });
}

// All groups go from unit to unit together: keys of the next one come while this one's values are weighed, its values
// while the next one's scores are found.
template <class Kv, int G>
ZINC_DEVICE void attend_tile(const AttentionParams& p, const Rows& tile, const UnitRoom<G>& room) {
  const int first_row = warp_id() / G * kUnitRows, member = warp_id() % G;
  const UnitRows rows = room.rows(p, tile, first_row);
  const bool has_rows = first_row < tile.n_rows;
  const int last_position = tile.position(tile.n_rows - 1), last = last_position / kUnitPositions;
  const int oldest = p.window > 0 ? max(0, tile.first_position - p.window + 1) : 0;
  const InShared source(room.unit, p.kv);
  const auto pages = [&](int unit) {
    return UnitPages(p.step, p.kv, tile.seq, tile.kv_head, min(unit, last), oldest, last_position);
  };
  Total total(room.keep);
  UnitResult chunk;
  clear(chunk);
  int unit = oldest / kUnitPositions;
  source.copy_keys<Kv>(pages(unit), p.kv);
  for (; unit <= last; ++unit) {
    const bool sees = has_rows && rows.see_some(unit);
    float scores[8 / G][4];
    wait_for_copies<0>();  // the keys; and the values before have been read
    source.copy_values<Kv>(pages(unit), p.kv);
    if (sees) {
      score_unit<G>(rows, source, padded(p.kv.k_dim) / 32, member, scores);
      mask_unit<G>(rows, unit, member, scores);
    }
    __syncthreads();
    source.copy_keys<Kv>(pages(unit + 1), p.kv);
    UnitResult one;
    if (sees) soften_unit<G>(rows, member, scores, one);
    wait_for_copies<1>();  // the values
    if (!sees) continue;
    weigh_unit<G>(rows, source, padded(p.kv.v_dim), member, one);
    merge_results(chunk, one);
    if (unit % kChunkUnits == kChunkUnits - 1 || unit == rows.last / kUnitPositions) {
      total.add(chunk);
      clear(chunk);
    }
  }
  if (!has_rows) return;
  total.load(chunk);
  write_rows(p, tile, chunk, first_row, member);
}

// Grid: tiles of heads, tiles of tokens; those with the most positions first.
template <class Kv, int G>
ZINC_DEVICE void attend_rows(const AttentionParams& p) {
  constexpr int kRows = kWarps / G * kUnitRows;
  extern __shared__ float4 shared[];
  let_next_start();
  wait_for_previous();
  const int n_tokens = p.step.counts[kTokens], n_tiles = (n_tokens + p.tokens_per_tile - 1) / p.tokens_per_tile;
  const int first = (n_tiles - 1 - static_cast<int>(blockIdx.y)) * p.tokens_per_tile;
  if (first < 0) return;
  const UnitRoom<G> room(p, shared, 32 * kThreads, kRows);
  const int end = min(n_tokens, first + p.tokens_per_tile);
  for (int t = first; t < end;) {  // tokens of one sequence at a time
    const Rows tile = find_rows(p, t, end);
    room.load_queries(p, tile, kRows);
    __syncthreads();
    attend_tile<Kv, G>(p, tile, room);
    __syncthreads();
    t += tile.n_tokens;
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
  const UnitRoom<G> room(p, shared, kChunkRoom<G>, kUnitRows);
  const Rows tile = find_rows(p, token, token + 1);
  room.load_queries(p, tile, kUnitRows);
  __syncthreads();
  const UnitRows rows = room.rows(p, tile, 0);
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

#define ZINC_ATTENTION(kv, name, G)                                                                           \
  extern "C" __global__ void __launch_bounds__(256, G <= 2 ? 2 : 1)                                           \
      attend_rows_##name##_##G(__grid_constant__ const AttentionParams p) {                                   \
    attend_rows<kv, G>(p);                                                                                    \
  }                                                                                                           \
  ZINC_KERNEL attend_few_##name##_##G(__grid_constant__ const AttentionParams p) { attend_few<kv, G>(p); }
ZINC_ATTENTION(KvF16, f16, 1)
ZINC_ATTENTION(KvF16, f16, 2)
ZINC_ATTENTION(KvF16, f16, 4)
ZINC_ATTENTION(KvF16, f16, 8)
ZINC_ATTENTION(KvQ8, q8_0, 1)
ZINC_ATTENTION(KvQ8, q8_0, 2)
ZINC_ATTENTION(KvQ8, q8_0, 4)
ZINC_ATTENTION(KvQ8, q8_0, 8)

}  // namespace zinc::simt
