// Attention on tensor cores, for KV caches of 16 bits or less: 16 query rows (tokens and heads that share keys) at a
// time. A KV tile is 64 positions at a multiple of 64. Scores are f16 MMA with float accumulation; each tile has its
// own softmax, whose probabilities (P) are rounded to f16. Tiles of a chunk are merged in order, then chunks. An MMA
// result row depends on that query row alone, so a row's result is the same whatever else is in its tile. A group of
// kGroupWarps warps has sets of 16 rows: each warp computes the scores of 64 / kGroupWarps positions, then 64
// dimensions of the output.
#pragma once

#include "backend/simt/kv_pages.h"

namespace zinc::simt {

constexpr int kKvTilePositions = 64, kMmaRows = 16, kWarpDims = 64;
constexpr int kChunkTiles = kChunkPositions / kKvTilePositions;
constexpr int kProbStride = kKvTilePositions + 8;  // f16 per row of P, padded against bank conflicts
constexpr float kLog2E = 1.44269504088896341f;

ZINC_DEVICE u32 pack_f16x2(float a, float b) { return float_to_half(a) | static_cast<u32>(float_to_half(b)) << 16; }

// cp_async_wait() for the whole block.
template <int n>
ZINC_DEVICE void cp_async_wait_block() {
  cp_async_wait<n>();
  __syncthreads();
}

// Eight elements of a key (element 8 * i of its 32-element block `block`) or of a value, as f16. pos: position in the
// page. Kv: a quantized format.
template <class Kv, bool is_f16 = Kv::kBits == 16>
struct KvAsF16 {
  using Scale = typename Kv::Scale;
  static ZINC_DEVICE const Scale* key_scales(const u8* keys, int k_dim) {
    return reinterpret_cast<const Scale*>(keys + scales_offset<Kv>(k_dim));
  }
  static ZINC_DEVICE Scale value_scale(const u8* values, int v_dim, int pos, int dim) {
    return reinterpret_cast<const Scale*>(values + scales_offset<Kv>(v_dim))[pos * (v_dim / 32) + dim / 32];
  }
  static ZINC_DEVICE uint4 key(const u8* keys, int k_dim, int pos, int block, int i) {
    const u8* from = key_group<Kv, 8>(keys, pos, block * 4 + i);
    return Kv::to_f16(*reinterpret_cast<const typename Kv::Eight*>(from),
                      key_scales(keys, k_dim)[block * kPageTokens + pos]);
  }
  static ZINC_DEVICE uint4 value(const u8* values, int v_dim, int pos, int dim) {
    const u8* from = value_group<Kv>(values, pos, v_dim, dim);
    return Kv::to_f16(*reinterpret_cast<const typename Kv::Eight*>(from), value_scale(values, v_dim, pos, dim));
  }
  // Sixteen elements before conversion: those at 16 * `piece` of a key, or at `dim` of a value.
  struct Piece {
    typename Kv::Sixteen quants;
    Scale scale;
    ZINC_DEVICE uint4 first() const { return Kv::to_f16(Kv::first(quants), scale); }
    ZINC_DEVICE uint4 second() const { return Kv::to_f16(Kv::second(quants), scale); }
  };
  static ZINC_DEVICE Piece key_piece(const u8* keys, int k_dim, int pos, int piece) {
    return {*reinterpret_cast<const typename Kv::Sixteen*>(key_group<Kv, 16>(keys, pos, piece)),
            key_scales(keys, k_dim)[piece / 2 * kPageTokens + pos]};
  }
  static ZINC_DEVICE Piece value_piece(const u8* values, int v_dim, int pos, int dim) {
    return {*reinterpret_cast<const typename Kv::Sixteen*>(value_group<Kv>(values, pos, v_dim, dim)),
            value_scale(values, v_dim, pos, dim)};
  }
  static ZINC_DEVICE void copy_key(u8* to, const u8* keys, int k_dim, int pos, int piece) {
    *reinterpret_cast<uint4*>(to) = key(keys, k_dim, pos, piece / 4, piece % 4);
  }
  static ZINC_DEVICE void copy_value(u8* to, const u8* values, int v_dim, int pos, int dim) {
    *reinterpret_cast<uint4*>(to) = value(values, v_dim, pos, dim);
  }
};
template <class Kv>
struct KvAsF16<Kv, true> {
  static ZINC_DEVICE uint4 key(const u8* keys, int, int pos, int block, int i) {
    return *reinterpret_cast<const uint4*>(keys + ((block * 4 + i) * kPageTokens + pos) * 16);
  }
  static ZINC_DEVICE uint4 value(const u8* values, int v_dim, int pos, int dim) {
    return *reinterpret_cast<const uint4*>(values + (pos * v_dim + dim) * 2);
  }
  static ZINC_DEVICE void copy_key(u8* to, const u8* keys, int, int pos, int piece) {
    cp_async_16(to, keys + (piece * kPageTokens + pos) * 16);
  }
  static ZINC_DEVICE void copy_value(u8* to, const u8* values, int v_dim, int pos, int dim) {
    cp_async_16(to, values + (pos * v_dim + dim) * 2);
  }
};

// The query rows of a warp group: up to 16 neighboring rows of a tile.
struct QueryRows {
  const u32* q;             // [16][q_stride] f16 pairs in shared memory
  int q_stride;             // in pairs
  u32* p_tile;              // P as f16 pairs [16][kProbStride / 2], shared by the group
  float* reduce_buf;        // [2][kGroupWarps][16]: row maxima, row sums of each warp
  int warp_group;           // index in the block: selects its named barrier
  int newest[2];            // the last visible position of the lane's two rows
  int oldest, first, last;  // visible positions: [oldest, last] of any row; up to `first` of all
  float scale, softcap;
  int window;

  ZINC_DEVICE bool all_visible(int kv_tile) const {
    const int begin = kv_tile * kKvTilePositions;
    return begin >= oldest && begin + kKvTilePositions - 1 <= first && (window == 0 || begin > last - window);
  }
  ZINC_DEVICE bool any_visible(int kv_tile) const {
    return kv_tile >= oldest / kKvTilePositions && kv_tile <= last / kKvTilePositions;
  }
};

// A lane's result of one KV tile: two rows, 8 apart; values[t] has dimensions 8 t + 2 i and 8 t + 2 i + 1 of the warp's
// 64, i = lane_in_quad. P * V multiplies 16 positions at a time: terms 2 i, 2 i + 1, 2 i + 8 and 2 i + 9 of an MMA are
// positions 4 i to 4 i + 3, so that a lane loads its probabilities as 8 bytes.
struct KvTileResult {
  SoftmaxState row[2];
  float values[8][4];
};

template <int kGroupWarps>
ZINC_DEVICE void warp_group_sync(int warp_group) {
  if constexpr (kGroupWarps == 1) {
    __syncwarp();
  } else {
    named_barrier_sync<kGroupWarps * 32>(warp_group + 1);
  }
}

// ---- sources of a KV tile ----

// Its pages; positions outside the visible range are clamped to it.
struct KvTilePages {
  const u8* page[2];
  int first, oldest, last;
  ZINC_DEVICE KvTilePages(const Step& step, const KvLayer& kv, int seq, int kv_head, int kv_tile, int init_oldest,
                          int init_last)
      : first(kv_tile * kKvTilePositions), oldest(init_oldest), last(init_last) {
#pragma unroll
    for (int page_index = 0; page_index < 2; ++page_index) {
      const int position = min(max(first + page_index * kPageTokens, oldest), last);
      page[page_index] = head_of(kv, page_of(step, kv.group, seq, position), kv_head);
    }
  }
  ZINC_DEVICE KvTilePages(const u8* first_page, const u8* second_page, int kv_tile, int init_oldest, int init_last)
      : page{first_page, second_page}, first(kv_tile * kKvTilePositions), oldest(init_oldest), last(init_last) {}
  // The page of position `pos` of the tile, and the position's offset in it.
  ZINC_DEVICE const u8* find(int pos, int& page_offset) const {
    pos = min(max(first + pos, oldest), last) - first;
    page_offset = pos % kPageTokens;
    return pos < kPageTokens ? page[0] : page[1];
  }
};

// In shared memory, as f16: keys in pieces of eight elements, interleaved over 32 positions; values in rows. Both are
// padded, and the value rows of each 16 positions permuted, against bank conflicts.
struct SmemKv {
  static constexpr int kPieceStride = kPageTokens * 16 + 32;
  u8 *keys, *values;
  int n_pieces, value_stride;
  ZINC_DEVICE SmemKv(u8* smem, const KvLayer& kv)
      : keys(smem), n_pieces(padded(kv.k_dim) / 8), value_stride((padded(kv.v_dim) + 63) / 64 * 128 + 32) {
    values = keys + 2 * n_pieces * kPieceStride;
  }
  ZINC_DEVICE u8* key_at(int pos, int piece) const {
    const u32 position = static_cast<u32>(pos);  // unsigned: cheaper division
    return keys + (static_cast<int>(position / kPageTokens) * n_pieces + piece) * kPieceStride +
           position % kPageTokens * 16;
  }
  ZINC_DEVICE u8* value_at(int pos, int dim) const {
    const u32 position = static_cast<u32>(pos);
    return values + static_cast<int>(position / 16 * 16 + position % 16 / 4 + position % 4 * 4) * value_stride +
           dim * 2;
  }
  ZINC_DEVICE uint4 key(int pos, int block, int i) const {
    return *reinterpret_cast<const uint4*>(key_at(pos, block * 4 + i));
  }
  ZINC_DEVICE uint4 value(int pos, int dim) const { return *reinterpret_cast<const uint4*>(value_at(pos, dim)); }

  // By all 256 threads; the copies are committed, not waited for.
  template <class Kv>
  ZINC_DEVICE void copy_keys(const KvTilePages& pages, const KvLayer& kv) const {
    const int pos = static_cast<int>(threadIdx.x) % kKvTilePositions,
              first = static_cast<int>(threadIdx.x) / kKvTilePositions;
    int page_offset;
    const u8* page = pages.find(pos, page_offset);
    for (int piece = first; piece < n_pieces; piece += 4) {
      KvAsF16<Kv>::copy_key(key_at(pos, piece), page, kv.k_dim, page_offset, piece);
    }
    cp_async_commit();
  }
  template <class Kv>
  ZINC_DEVICE void copy_values(const KvTilePages& pages, const KvLayer& kv) const {
    const int pos = static_cast<int>(threadIdx.x) / 4, v_dim = padded(kv.v_dim);
    int page_offset;
    const u8* page = pages.find(pos, page_offset) + kv.value_begin;
    for (int dim = static_cast<int>(threadIdx.x) % 4 * 8; dim < v_dim; dim += 32) {
      KvAsF16<Kv>::copy_value(value_at(pos, dim), page, v_dim, page_offset, dim);
    }
    cp_async_commit();
  }
};

// ---- one KV tile ----

// Adds 32 dimensions of the scores of mma tiles first .. first + kInFlight - 1.
template <int kInFlight, int kTiles>
ZINC_DEVICE void score_block(const QueryRows& rows, int block, int first, const uint4 (&key)[kInFlight],
                             float (&scores)[kTiles][4]) {
  const int quad = lane_id() / 4, lane_in_quad = lane_id() % 4;
  const uint4 a = *reinterpret_cast<const uint4*>(rows.q + quad * rows.q_stride + block * 16 + 4 * lane_in_quad);
  const uint4 b = *reinterpret_cast<const uint4*>(rows.q + (quad + 8) * rows.q_stride + block * 16 + 4 * lane_in_quad);
#pragma unroll
  for (int t = 0; t < kInFlight; ++t) {
    mma_m16n8k16_f16(scores[first + t], a.x, b.x, a.y, b.y, key[t].x, key[t].y);
    mma_m16n8k16_f16(scores[first + t], a.z, b.z, a.w, b.w, key[t].z, key[t].w);
  }
}

template <int kTiles>
ZINC_DEVICE void clear(float (&scores)[kTiles][4]) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int e = 0; e < 4; ++e) scores[t][e] = 0;
  }
}

// The scores of all row sets; each key is loaded once for all of them.
template <int kGroupWarps, int kRowSets, class Source>
ZINC_DEVICE void score_tile(const QueryRows (&rows)[kRowSets], const Source& source, int n_blocks, int warp_in_group,
                            float (&scores)[kRowSets][8 / kGroupWarps][4]) {
  constexpr int kTiles = 8 / kGroupWarps, kInFlight = kTiles < 4 ? kTiles : 4;  // keys in registers at once
#pragma unroll
  for (int r = 0; r < kRowSets; ++r) clear(scores[r]);
#pragma unroll 1
  for (int block = 0; block < n_blocks; ++block) {
#pragma unroll
    for (int first = 0; first < kTiles; first += kInFlight) {
      uint4 key[kInFlight];
#pragma unroll
      for (int t = 0; t < kInFlight; ++t) {
        key[t] = source.key((warp_in_group * kTiles + first + t) * 8 + lane_id() / 4, block, lane_id() % 4);
      }
#pragma unroll
      for (int r = 0; r < kRowSets; ++r) score_block(rows[r], block, first, key, scores[r]);
    }
  }
}

// Applies scale, softcap and mask; the warp's row maxima go to reduce_buf.
template <int kGroupWarps>
ZINC_DEVICE void mask_tile(const QueryRows& rows, int kv_tile, int warp_in_group, float (&scores)[8 / kGroupWarps][4]) {
  constexpr int kTiles = 8 / kGroupWarps, kMmaElems = 4;
  const int quad = lane_id() / 4, lane_in_quad = lane_id() % 4;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int e = 0; e < kMmaElems; ++e) scores[t][e] *= rows.scale;
  }
  if (rows.softcap > 0) {
#pragma unroll 1
    for (int t = 0; t < kTiles * kMmaElems; ++t) {
      float s = scores[0][0];  // rotating the array keeps it in registers
#pragma unroll
      for (int e = 0; e + 1 < kTiles * kMmaElems; ++e)
        scores[e / kMmaElems][e % kMmaElems] = scores[(e + 1) / kMmaElems][(e + 1) % kMmaElems];
      scores[kTiles - 1][kMmaElems - 1] = rows.softcap * tanhf(s / rows.softcap);
    }
  }
  if (!rows.all_visible(kv_tile)) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < kMmaElems; ++e) {
        const int position = kv_tile * kKvTilePositions + (warp_in_group * kTiles + t) * 8 + 2 * lane_in_quad + e % 2;
        const int newest = rows.newest[e / 2];
        const bool is_visible_to_row =
            position <= newest && position >= rows.oldest && (rows.window == 0 || position > newest - rows.window);
        if (!is_visible_to_row) scores[t][e] = neg_inf();
      }
    }
  }
#pragma unroll
  for (int row_half = 0; row_half < 2; ++row_half) {
    float row_max = neg_inf();
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
      row_max = fmaxf(row_max, fmaxf(scores[t][2 * row_half], scores[t][2 * row_half + 1]));
    row_max = warp_max(row_max, 4);
    if (lane_in_quad == 0) rows.reduce_buf[warp_in_group * 16 + quad + 8 * row_half] = row_max;
  }
}

// Scores become softmax probabilities, not yet normalized; the warp's row sums go to reduce_buf. REQUIRES:
// warp_group_sync after mask_tile().
template <int kGroupWarps>
ZINC_DEVICE void softmax_tile(const QueryRows& rows, int warp_in_group, float (&scores)[8 / kGroupWarps][4],
                              SoftmaxState (&row)[2]) {
  constexpr int kTiles = 8 / kGroupWarps;
  const int quad = lane_id() / 4, lane_in_quad = lane_id() % 4;
  float offset[2];
#pragma unroll
  for (int row_half = 0; row_half < 2; ++row_half) {
    float row_max = rows.reduce_buf[quad + 8 * row_half];
#pragma unroll
    for (int w = 1; w < kGroupWarps; ++w) row_max = fmaxf(row_max, rows.reduce_buf[w * 16 + quad + 8 * row_half]);
    row[row_half].max = row_max;
    offset[row_half] = row_max == neg_inf() ? 0.0f : row_max;  // avoids inf - inf in rows without a visible position
  }
  float sum[2] = {0, 0};
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      scores[t][e] = exp2_approx((scores[t][e] - offset[e / 2]) * kLog2E);
      sum[e / 2] += scores[t][e];
    }
    u32* to = rows.p_tile + (warp_in_group * kTiles + t) * 4 + lane_in_quad;
    to[quad * (kProbStride / 2)] = pack_f16x2(scores[t][0], scores[t][1]);
    to[(quad + 8) * (kProbStride / 2)] = pack_f16x2(scores[t][2], scores[t][3]);
  }
#pragma unroll
  for (int row_half = 0; row_half < 2; ++row_half) {
    sum[row_half] = warp_sum(sum[row_half], 4);
    if (lane_in_quad == 0) rows.reduce_buf[(kGroupWarps + warp_in_group) * 16 + quad + 8 * row_half] = sum[row_half];
  }
}

// Merges `next` into `all`; rows without visible positions in `next` stay unchanged.
ZINC_DEVICE void merge_tiles(KvTileResult& all, const KvTileResult& next) {
  float old_scale[2] = {1, 1}, new_scale[2] = {0, 0};
#pragma unroll
  for (int row_half = 0; row_half < 2; ++row_half) {
    if (next.row[row_half].max != neg_inf())
      merge_softmax(all.row[row_half], next.row[row_half], old_scale[row_half], new_scale[row_half]);
  }
#pragma unroll
  for (int t = 0; t < 8; ++t) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (next.row[e / 2].max != neg_inf()) {
        all.values[t][e] = merge_value(all.values[t][e], next.values[t][e], old_scale[e / 2], new_scale[e / 2]);
      }
    }
  }
}
ZINC_DEVICE void clear(KvTileResult& result) {
#pragma unroll
  for (int row_half = 0; row_half < 2; ++row_half) result.row[row_half] = {neg_inf(), 0.0f};
#pragma unroll
  for (int t = 0; t < 8; ++t) {
#pragma unroll
    for (int e = 0; e < 4; ++e) result.values[t][e] = 0;
  }
}

// Quantizes a segment of a result in shared memory. Not inline: what depends on the lane would otherwise be computed
// before the loops of the kernel.
__device__ __noinline__ void quantize_segment(const float* x, const Q8Activation q8, int q8_block, int token,
                                              int segment) {
  store_q8(quantize_vec8(load_vec8(x, lane_id() * 8, kSegmentElems), q8_block), q8, token, segment, q8_block);
}

// A pair of a query as f16, zero past its end. The transform is not inlined: its registers would be missing in the
// loops.
__device__ __noinline__ u32 transformed_pair(float first, float second) {
  float x[2] = {first, second};
  transform_query<Kv>(x);
  return pack_f16x2(x[0], x[1]);
}
ZINC_DEVICE void store_query(u32* to, const float* q, int k_dim, int pair) {
  const int k = 2 * pair;
  const float first = k < k_dim ? q[k] : 0.0f, second = k + 1 < k_dim ? q[k + 1] : 0.0f;
  to[pair] = Kv::kTransformsKeys ? transformed_pair(first, second) : pack_f16x2(first, second);
}
ZINC_DEVICE int query_stride(int k_dim) { return padded(k_dim) / 2 + 4; }  // padded against bank conflicts

}  // namespace zinc::simt
