// Prefill attention on tensor cores: a block loops over the positions of its rows, in the KV tiles of attention_mma.h.
// Bit-identical to attention_units.cu, which has the sequences with few tokens in the step. A program of this file
// begins with its compile-time shape, kShape.
#include "backend/simt/attention_mma.h"

namespace zinc::simt {

// The query rows of a block: consecutive tokens of one sequence times heads that share keys.
struct QueryTile {
  int seq, first_token, n_tokens, kv_head, first_head, n_heads, n_rows, first_position;
  ZINC_DEVICE int token(int row) const { return first_token + row / n_heads; }
  ZINC_DEVICE int head(int row) const { return first_head + row % n_heads; }
  ZINC_DEVICE int position(int row) const { return first_position + min(row, n_rows - 1) / n_heads; }
  // Positions visible to any row.
  ZINC_DEVICE int oldest(int window) const { return window > 0 ? max(0, first_position - window + 1) : 0; }
  ZINC_DEVICE int last() const { return first_position + n_tokens - 1; }
};

ZINC_DEVICE QueryTile find_query_tile(const AttentionParams& p, int first_token, int end) {
  const int heads_per_kv_head = p.n_heads / p.kv.kv_heads,
            tiles = (heads_per_kv_head + p.heads_per_tile - 1) / p.heads_per_tile;
  const int head_offset = static_cast<int>(blockIdx.x) % tiles * p.heads_per_tile;
  QueryTile rows;
  rows.seq = p.step.seq_of_token[first_token];
  rows.first_token = first_token;
  rows.n_tokens = min(end, p.step.seq_begin[rows.seq + 1]) - first_token;
  rows.kv_head = static_cast<int>(blockIdx.x) / tiles;
  rows.first_head = rows.kv_head * heads_per_kv_head + head_offset;
  rows.n_heads = min(p.heads_per_tile, heads_per_kv_head - head_offset);
  rows.n_rows = rows.n_tokens * rows.n_heads;
  rows.first_position = p.step.positions[first_token];
  return rows;
}

// The first token from t on that is not a split row.
ZINC_DEVICE int next_prefill_token(const AttentionParams& p, int t, int end) {
  return p.prefill_tokens && t < end ? p.prefill_tokens[t] : t;
}

// Shared memory of a block: the accumulator, then queries, P and reduce_buf of each group's row sets, and a KV tile.
template <int kGroupWarps, int kRowSets>
struct AttentionSmem {
  float* accumulator;
  u32 *q, *p_tile;
  float* reduce_buf;
  u8* kv_tile;
  ZINC_DEVICE AttentionSmem(const AttentionParams& p, float4* shared, int accumulator_floats, int n_rows) {
    constexpr int kSets = kWarps / kGroupWarps * kRowSets;
    accumulator = reinterpret_cast<float*>(shared);
    q = reinterpret_cast<u32*>(accumulator + accumulator_floats);
    p_tile = q + n_rows * query_stride(p.kv.k_dim);
    reduce_buf = reinterpret_cast<float*>(p_tile + kSets * kMmaRows * (kProbStride / 2));
    kv_tile = reinterpret_cast<u8*>(reduce_buf + kSets * 2 * kGroupWarps * 16);
  }
  ZINC_DEVICE void load_queries(const AttentionParams& p, const QueryTile& rows, int n_rows) const {
    const int stride = query_stride(p.kv.k_dim), pairs = padded(p.kv.k_dim) / 2;
    for (int i = static_cast<int>(threadIdx.x); i < n_rows * pairs; i += kThreads) {
      const int row = min(i / pairs, rows.n_rows - 1);  // rows past the last repeat it
      const long long head_index = static_cast<long long>(rows.token(row)) * p.n_heads + rows.head(row);
      store_query(q + i / pairs * stride, p.q + head_index * p.kv.k_dim, p.kv.k_dim, i % pairs);
    }
  }
  // The row set of the group that begins at `first_row`.
  ZINC_DEVICE QueryRows rows(const AttentionParams& p, const QueryTile& rows, int first_row, int set) const {
    const int warp_group = warp_id() / kGroupWarps, set_index = warp_group * kRowSets + set;
    QueryRows out;
    out.q_stride = query_stride(p.kv.k_dim);
    out.q = q + first_row * out.q_stride;
    out.p_tile = p_tile + set_index * kMmaRows * (kProbStride / 2);
    out.reduce_buf = reduce_buf + set_index * 2 * kGroupWarps * 16;
    out.warp_group = warp_group;
    for (int row_half = 0; row_half < 2; ++row_half)
      out.newest[row_half] = rows.position(first_row + lane_id() / 4 + 8 * row_half);
    out.oldest = p.window > 0 ? max(0, rows.position(first_row) - p.window + 1) : 0;
    out.first = rows.position(first_row);
    out.last = rows.position(first_row + kMmaRows - 1);
    out.scale = p.scale;
    out.softcap = p.softcap;
    out.window = p.window;
    return out;
  }
};

// A lane's running result over all chunks: in registers, or in shared memory if scores need the registers
// (accumulates_in_registers).
template <int kRowSets, bool in_registers>
struct Accumulator {
  KvTileResult all[kRowSets];
  ZINC_DEVICE explicit Accumulator(float*) {
#pragma unroll
    for (int r = 0; r < kRowSets; ++r) clear(all[r]);
  }
  ZINC_DEVICE void add(int r, const KvTileResult& chunk) { merge_tiles(all[r], chunk); }
  ZINC_DEVICE void load(int r, KvTileResult& out) const { out = all[r]; }
};
template <int kRowSets>
struct Accumulator<kRowSets, false> {
  float* smem;
  ZINC_DEVICE explicit Accumulator(float* init_smem) : smem(init_smem + threadIdx.x) {
#pragma unroll
    for (int r = 0; r < kRowSets; ++r) {
#pragma unroll
      for (int i = 0; i < 36; ++i) element(r, i) = i < 32 || i % 2 == 1 ? 0.0f : neg_inf();
    }
  }
  ZINC_DEVICE float& element(int r, int i) const { return smem[(r * kAccumulatorFloats + i) * kThreads]; }
  ZINC_DEVICE void add(int r, const KvTileResult& chunk) {
#pragma unroll
    for (int row_half = 0; row_half < 2; ++row_half) {
      if (chunk.row[row_half].max == neg_inf()) continue;
      SoftmaxState all = {element(r, 32 + 2 * row_half), element(r, 33 + 2 * row_half)};
      float old_scale, new_scale;
      merge_softmax(all, chunk.row[row_half], old_scale, new_scale);
      element(r, 32 + 2 * row_half) = all.max;
      element(r, 33 + 2 * row_half) = all.sum;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int t = i / 2, e = 2 * row_half + i % 2;
        element(r, t * 4 + e) = merge_value(element(r, t * 4 + e), chunk.values[t][e], old_scale, new_scale);
      }
    }
  }
  ZINC_DEVICE void load(int r, KvTileResult& out) const {
#pragma unroll
    for (int row_half = 0; row_half < 2; ++row_half)
      out.row[row_half] = {element(r, 32 + 2 * row_half), element(r, 33 + 2 * row_half)};
#pragma unroll
    for (int i = 0; i < 32; ++i) out.values[i / 4][i % 4] = element(r, i);
  }
};

// P * V of the tile for all row sets, merged into their chunks, kDims dimensions at a time. The ldmatrix rows are
// chosen so that the terms have the order of KvTileResult. Padding past a row's end is multiplied and not written. `next`: the softmax
// states of the tile.
template <int kGroupWarps, int kRowSets>
ZINC_DEVICE void pv_and_merge(const QueryRows (&rows)[kRowSets], const SmemKv& source, int v_dim, int warp_in_group,
                              KvTileResult (&all)[kRowSets], SoftmaxState (&next)[kRowSets][2]) {
  const int quad = lane_id() / 4, lane_in_quad = lane_id() % 4, row = lane_id() % 8;
  float old_scale[kRowSets][2], new_scale[kRowSets][2];
#pragma unroll
  for (int r = 0; r < kRowSets; ++r) {
#pragma unroll
    for (int row_half = 0; row_half < 2; ++row_half) {
      const float* sums = rows[r].reduce_buf + kGroupWarps * 16 + quad + 8 * row_half;
      next[r][row_half].sum = sums[0];
#pragma unroll
      for (int w = 1; w < kGroupWarps; ++w) next[r][row_half].sum += sums[w * 16];
      if (next[r][row_half].max != neg_inf())
        merge_softmax(all[r].row[row_half], next[r][row_half], old_scale[r][row_half], new_scale[r][row_half]);
    }
  }
  if (warp_in_group * kWarpDims >= v_dim) return;
  const u8* first = source.value_at(row / 2 * 4 + lane_id() / 8 % 2 * 2 + row % 2,  //
                                    warp_in_group * kWarpDims + lane_id() / 16 * 8);
  constexpr int kDims = accumulates_in_registers(kGroupWarps) ? 16 : 32;  // per pass
#pragma unroll
  for (int d = 0; d < kWarpDims; d += kDims) {
    float values[kRowSets][kDims / 8][4];
#pragma unroll
    for (int r = 0; r < kRowSets; ++r) clear(values[r]);
#pragma unroll 2
    for (int k = 0; k < kKvTilePositions / 16; ++k) {
      uint4 v[kDims / 16];
#pragma unroll
      for (int t = 0; t < kDims / 16; ++t)
        v[t] = ldmatrix_x4_trans(first + k * 16 * source.value_stride + d * 2 + t * 32);
#pragma unroll
      for (int r = 0; r < kRowSets; ++r) {
        const u32* p_tile = rows[r].p_tile + quad * (kProbStride / 2) + k * 8 + 2 * lane_in_quad;
        const uint2 a = *reinterpret_cast<const uint2*>(p_tile);
        const uint2 b = *reinterpret_cast<const uint2*>(p_tile + 8 * (kProbStride / 2));
#pragma unroll
        for (int t = 0; t < kDims / 16; ++t) {
          mma_m16n8k16_f16(values[r][2 * t], a.x, b.x, a.y, b.y, v[t].x, v[t].y);
          mma_m16n8k16_f16(values[r][2 * t + 1], a.x, b.x, a.y, b.y, v[t].z, v[t].w);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRowSets; ++r) {
#pragma unroll
      for (int e = 0; e < kDims / 2; ++e) {
        const int row_half = e % 4 / 2;
        if (next[r][row_half].max == neg_inf()) continue;
        float& value = all[r].values[d / 8 + e / 4][e % 4];
        value = merge_value(value, values[r][e / 4][e % 4], old_scale[r][row_half], new_scale[r][row_half]);
      }
    }
  }
}

// Writes a row set, normalized by the row sums, and to `staged` if it is quantized too: [16, v_dim].
ZINC_DEVICE void write_rows(const AttentionParams& p, const QueryTile& tile, const KvTileResult& all, int first_row,
                            int warp_in_group, float* staged) {
#pragma unroll
  for (int row_half = 0; row_half < 2; ++row_half) {
    const int row = first_row + lane_id() / 4 + 8 * row_half;
    if (row >= tile.n_rows) continue;
    const float factor = final_factor(all.row[row_half], p.sinks, tile.head(row));
    float* out = p.out + (static_cast<long long>(tile.token(row)) * p.n_heads + tile.head(row)) * p.kv.v_dim;
#pragma unroll
    for (int e = 0; e < 16; ++e) {
      const int dim = warp_in_group * kWarpDims + e / 2 * 8 + lane_id() % 4 * 2 + e % 2;
      if (dim >= p.kv.v_dim) continue;
      float x = all.values[e / 2][2 * row_half + e % 2] * factor;
      if constexpr (kShape.act != kNoAct) x = apply_gate(p, kShape.act, tile.token(row), tile.head(row), dim, x);
      if (p.out) out[dim] = x;
      if constexpr (kShape.has_q8 != 0) staged[(lane_id() / 4 + 8 * row_half) * p.kv.v_dim + dim] = x;
    }
  }
}
// Quantizes a staged row set, which begins and ends at segments of its tokens' rows.
template <int kGroupWarps>
ZINC_DEVICE void quantize_rows(const AttentionParams& p, const QueryTile& tile, int first_row, int warp_in_group,
                               const float* staged) {
  const int v_dim = p.kv.v_dim;
  for (int i = warp_in_group * kSegmentElems; i < kMmaRows * v_dim; i += kGroupWarps * kSegmentElems) {
    const int row = first_row + i / v_dim;
    if (row >= tile.n_rows) break;
    quantize_segment(staged + i, p.q8, p.q8_block, tile.token(row),
                     (tile.head(row) * v_dim + i % v_dim) / kSegmentElems);
  }
}

// All groups process the same KV tile: its values load while its scores are computed, the next tile's keys while its
// values are multiplied.
template <class Kv, int kGroupWarps, int kRowSets>
ZINC_DEVICE void attend_tile(const AttentionParams& p, const QueryTile& tile,
                             const AttentionSmem<kGroupWarps, kRowSets>& smem) {
  const int first_row = warp_id() / kGroupWarps * kRowSets * kMmaRows, warp_in_group = warp_id() % kGroupWarps;
  QueryRows rows[kRowSets];
#pragma unroll
  for (int r = 0; r < kRowSets; ++r) rows[r] = smem.rows(p, tile, first_row + r * kMmaRows, r);
  const bool has_rows = first_row < tile.n_rows;
  const SmemKv source(smem.kv_tile, p.kv);
  const auto pages_of = [&](int kv_tile) {
    return KvTilePages(p.step, p.kv, tile.seq, tile.kv_head, min(kv_tile, tile.last() / kKvTilePositions),
                       tile.oldest(p.window), tile.last());
  };
  Accumulator<kRowSets, accumulates_in_registers(kGroupWarps)> total(smem.accumulator);
  KvTileResult chunk[kRowSets];
#pragma unroll
  for (int r = 0; r < kRowSets; ++r) clear(chunk[r]);
  int kv_tile = tile.oldest(p.window) / kKvTilePositions;
  const int last_seen = rows[kRowSets - 1].last / kKvTilePositions;  // visible to the group
  KvTilePages pages = pages_of(kv_tile);
  source.copy_keys<Kv>(pages, p.kv);
#pragma unroll 1
  for (; kv_tile <= tile.last() / kKvTilePositions; ++kv_tile) {
    const bool is_visible_to_row = has_rows && kv_tile >= rows[0].oldest / kKvTilePositions && kv_tile <= last_seen;
    float scores[kRowSets][8 / kGroupWarps][4];
    SoftmaxState tile_state[kRowSets][2];
    cp_async_wait_block<0>();  // the keys have arrived, the previous values have been read
    source.copy_values<Kv>(pages, p.kv);
    pages = pages_of(kv_tile + 1);
    if (is_visible_to_row) {
      score_tile<kGroupWarps>(rows, source, padded(p.kv.k_dim) / 32, warp_in_group, scores);
#pragma unroll
      for (int r = 0; r < kRowSets; ++r) mask_tile<kGroupWarps>(rows[r], kv_tile, warp_in_group, scores[r]);
    }
    __syncthreads();
    source.copy_keys<Kv>(pages, p.kv);
    if (is_visible_to_row) {
#pragma unroll
      for (int r = 0; r < kRowSets; ++r) softmax_tile<kGroupWarps>(rows[r], warp_in_group, scores[r], tile_state[r]);
    }
    cp_async_wait_block<1>();  // the values have arrived
    if (!is_visible_to_row) continue;
    pv_and_merge<kGroupWarps>(rows, source, padded(p.kv.v_dim), warp_in_group, chunk, tile_state);
    if (kv_tile % kChunkTiles == kChunkTiles - 1 || kv_tile == last_seen) {
#pragma unroll
      for (int r = 0; r < kRowSets; ++r) {
        total.add(r, chunk[r]);
        clear(chunk[r]);
      }
    }
  }
  cp_async_wait<0>();  // keys past the last tile: the next query tile reuses the memory
#pragma unroll
  for (int r = 0; r < kRowSets; ++r) total.load(r, chunk[r]);
  __syncthreads();  // accumulators or KV tile have been read: rows are staged in their memory
  if (!has_rows) return;
  const int warp_group = warp_id() / kGroupWarps;
  float* staged = (accumulates_in_registers(kGroupWarps) ? reinterpret_cast<float*>(smem.kv_tile) : smem.accumulator) +
                  warp_group * kMmaRows * p.kv.v_dim;
#pragma unroll
  for (int r = 0; r < kRowSets; ++r) {
    write_rows(p, tile, chunk[r], first_row + r * kMmaRows, warp_in_group, staged);
    if constexpr (kShape.has_q8 == 0) continue;
    warp_group_sync<kGroupWarps>(warp_group);
    quantize_rows<kGroupWarps>(p, tile, first_row + r * kMmaRows, warp_in_group, staged);
    warp_group_sync<kGroupWarps>(warp_group);
  }
}

// Grid: head tiles, token tiles; those with the most positions first.
template <class Kv, int kGroupWarps, int kRowSets>
ZINC_DEVICE void attention_prefill(const AttentionParams& p) {
  constexpr int kRows = kWarps / kGroupWarps * kRowSets * kMmaRows;
  extern __shared__ float4 shared[];
  launch_dependents();
  const int n_tokens = p.step.counts[kTokens], n_tiles = (n_tokens + p.tokens_per_tile - 1) / p.tokens_per_tile;
  const int first = (n_tiles - 1 - static_cast<int>(blockIdx.y)) * p.tokens_per_tile;
  const int end = min(n_tokens, first + p.tokens_per_tile);
  int t = first < 0 ? end : next_prefill_token(p, first, end);
  wait_dependency();
  if (t >= end) return;
  const AttentionSmem<kGroupWarps, kRowSets> smem(
      p, shared, accumulates_in_registers(kGroupWarps) ? 0 : kRowSets * kAccumulatorFloats * kThreads, kRows);
  __shared__ QueryTile tile;  // in shared memory to save registers
  while (t < end) {           // tokens of one sequence at a time
    if (threadIdx.x == 0) tile = find_query_tile(p, t, end);
    __syncthreads();
    t = next_prefill_token(p, t + tile.n_tokens, end);
    smem.load_queries(p, tile, kRows);
    __syncthreads();
    attend_tile<Kv, kGroupWarps, kRowSets>(p, tile, smem);
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(256, 1) attention_prefill(__grid_constant__ const AttentionParams p) {
  attention_prefill<Kv, kShape.n_warps, kShape.n_sets>(p);
}

}  // namespace zinc::simt
