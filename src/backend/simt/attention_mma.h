// Attention on matrix cores, for keys and values of 16 or 8 bits: 16 rows (tokens and heads that share keys) at a time.
// A unit is 64 positions at a multiple of 64. Scores are products of halves summed in floats; the unit's softmax is
// finished alone and its weights are rounded to halves. Units of a chunk are merged in order, chunks likewise. Each row
// of a matrix instruction's result depends on that row alone, so a row's result is the same whatever shares its tile.
// A group of G warps has sets of 16 rows: each warp the scores of 64 / G positions, then 64 of the values' dimensions.
#pragma once

#include "backend/simt/kv_pages.h"

namespace zinc::simt {

constexpr int kUnitPositions = 64, kUnitRows = 16, kUnitDims = 64;
constexpr int kChunkUnits = kChunkPositions / kUnitPositions;
constexpr int kWeightStride = kUnitPositions + 8;  // halves of a row of weights: rows start in different banks
constexpr float kLog2E = 1.44269504088896341f;

ZINC_DEVICE u32 pack_halves(float a, float b) { return float_to_half(a) | static_cast<u32>(float_to_half(b)) << 16; }

// All copies but the last n sets are there, for the whole block.
template <int n>
ZINC_DEVICE void wait_for_copies() {
  await_copies<n>();
  __syncthreads();
}

// Eight numbers from 8 * i on of a key's 32-number block, or of a value, as halves. Kv: one of bytes and scales.
template <class Kv>
struct Halves {
  using Scale = typename Kv::Scale;
  static ZINC_DEVICE uint4 key(const u8* keys, int k_dim, int at, int block, int i) {
    const u8* piece = keys + ((block * 2 + i / 2) * kPagePositions + at) * 16 + i % 2 * 8;
    const Scale* scales = reinterpret_cast<const Scale*>(keys + k_dim * kPagePositions);
    return Kv::halves(*reinterpret_cast<const uint2*>(piece), scales[block * kPagePositions + at]);
  }
  static ZINC_DEVICE uint4 value(const u8* values, int v_dim, int at, int dim) {
    const Scale* scales = reinterpret_cast<const Scale*>(values + v_dim * kPagePositions);
    return Kv::halves(*reinterpret_cast<const uint2*>(values + at * v_dim + dim), scales[at * (v_dim / 32) + dim / 32]);
  }
  // Sixteen of them, before they are halves: number 16 * piece of a key on, or `dim` of a value.
  struct Piece {
    uint4 bytes;
    Scale scale;
    ZINC_DEVICE uint4 first() const { return Kv::halves(make_uint2(bytes.x, bytes.y), scale); }
    ZINC_DEVICE uint4 second() const { return Kv::halves(make_uint2(bytes.z, bytes.w), scale); }
  };
  static ZINC_DEVICE Piece key_piece(const u8* keys, int k_dim, int at, int piece) {
    const Scale* scales = reinterpret_cast<const Scale*>(keys + k_dim * kPagePositions);
    return {*reinterpret_cast<const uint4*>(keys + (piece * kPagePositions + at) * 16),
            scales[piece / 2 * kPagePositions + at]};
  }
  static ZINC_DEVICE Piece value_piece(const u8* values, int v_dim, int at, int dim) {
    const Scale* scales = reinterpret_cast<const Scale*>(values + v_dim * kPagePositions);
    return {*reinterpret_cast<const uint4*>(values + at * v_dim + dim), scales[at * (v_dim / 32) + dim / 32]};
  }
  static ZINC_DEVICE void copy_key(u8* to, const u8* keys, int k_dim, int at, int piece) {
    *reinterpret_cast<uint4*>(to) = key(keys, k_dim, at, piece / 4, piece % 4);
  }
  static ZINC_DEVICE void copy_value(u8* to, const u8* values, int v_dim, int at, int dim) {
    *reinterpret_cast<uint4*>(to) = value(values, v_dim, at, dim);
  }
};
template <>
struct Halves<KvF16> {
  static ZINC_DEVICE uint4 key(const u8* keys, int, int at, int block, int i) {
    return *reinterpret_cast<const uint4*>(keys + ((block * 4 + i) * kPagePositions + at) * 16);
  }
  static ZINC_DEVICE uint4 value(const u8* values, int v_dim, int at, int dim) {
    return *reinterpret_cast<const uint4*>(values + (at * v_dim + dim) * 2);
  }
  static ZINC_DEVICE void copy_key(u8* to, const u8* keys, int, int at, int piece) {
    copy_16(to, keys + (piece * kPagePositions + at) * 16);
  }
  static ZINC_DEVICE void copy_value(u8* to, const u8* values, int v_dim, int at, int dim) {
    copy_16(to, values + (at * v_dim + dim) * 2);
  }
};

// The rows of a group: up to 16 neighbouring rows of a tile.
struct UnitRows {
  const u32* q;             // [16][q_stride] halves in shared memory, pairs
  int q_stride;             // in pairs
  u32* weights;             // [16][kWeightStride / 2] pairs, shared by the group
  float* exchange;          // [2][G][16]
  int group;                // of the block's groups: names its barrier
  int newest[2];            // the last position the lane's two rows see
  int oldest, first, last;  // positions any row sees; the last one all see
  float scale, softcap;
  int window;

  // All rows see all positions of the unit.
  ZINC_DEVICE bool see_all(int unit) const {
    const int begin = unit * kUnitPositions;
    return begin >= oldest && begin + kUnitPositions - 1 <= first && (window == 0 || begin > last - window);
  }
  ZINC_DEVICE bool see_some(int unit) const { return unit >= oldest / kUnitPositions && unit <= last / kUnitPositions; }
};

// One unit's result: of the lane's two rows, 8 apart, and for each dimension t of eight the columns 2 i and 2 i + 1:
// dimensions 8 * (2 i) + t and 8 * (2 i + 1) + t of the warp's 64.
struct UnitResult {
  Running row[2];
  float values[8][4];
};

template <int G>
ZINC_DEVICE void group_meets(int group) {
  if constexpr (G == 1) {
    __syncwarp();
  } else {
    meet<G * 32>(group + 1);
  }
}

// ---- where a unit's keys and values are ----

// In its pages; positions outside what is seen stand for the nearest that is.
struct UnitPages {
  const u8* page[2];
  int first, oldest, last;
  ZINC_DEVICE UnitPages(const Step& step, const KvLayer& kv, int seq, int kv_head, int unit, int its_oldest,
                        int its_last)
      : first(unit * kUnitPositions), oldest(its_oldest), last(its_last) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int position = min(max(first + h * kPagePositions, oldest), last);
      page[h] = head_of(kv, page_of(step, kv.group, seq, position), kv_head);
    }
  }
  ZINC_DEVICE UnitPages(const u8* first_page, const u8* second_page, int unit, int its_oldest, int its_last)
      : page{first_page, second_page}, first(unit * kUnitPositions), oldest(its_oldest), last(its_last) {}
  // Position `at` of the unit: its page and its place there.
  ZINC_DEVICE const u8* find(int at, int& place) const {
    at = min(max(first + at, oldest), last) - first;
    place = at % kPagePositions;
    return at < kPagePositions ? page[0] : page[1];
  }
};
template <class Kv>
struct InPages {
  const UnitPages& pages;
  const KvLayer& kv;
  ZINC_DEVICE uint4 key(int at, int block, int i) const {
    int place;
    const u8* page = pages.find(at, place);
    return Halves<Kv>::key(page, kv.k_dim, place, block, i);
  }
  ZINC_DEVICE uint4 value(int at, int dim) const {
    int place;
    const u8* page = pages.find(at, place);
    return Halves<Kv>::value(page + kv.value_begin, padded(kv.v_dim), place, dim);
  }
};

// In shared memory, as halves: pieces of eight numbers of a key side by side for 32 positions, values in rows; both
// with gaps, and the rows of each 16 positions in another order, so that lanes meet different banks.
struct InShared {
  static constexpr int kPieceStride = kPagePositions * 16 + 32;
  u8 *keys, *values;
  int n_pieces, value_stride;
  ZINC_DEVICE InShared(u8* room, const KvLayer& kv)
      : keys(room), n_pieces(padded(kv.k_dim) / 8), value_stride((padded(kv.v_dim) + 63) / 64 * 128 + 32) {
    values = keys + 2 * n_pieces * kPieceStride;
  }
  ZINC_DEVICE u8* key_at(int at, int piece) const {
    const u32 place = static_cast<u32>(at);  // divided without a thought of signs
    return keys + (static_cast<int>(place / kPagePositions) * n_pieces + piece) * kPieceStride +
           place % kPagePositions * 16;
  }
  ZINC_DEVICE u8* value_at(int at, int dim) const {
    const u32 place = static_cast<u32>(at);
    return values + static_cast<int>(place / 16 * 16 + place % 16 / 4 + place % 4 * 4) * value_stride + dim * 2;
  }
  ZINC_DEVICE uint4 key(int at, int block, int i) const {
    return *reinterpret_cast<const uint4*>(key_at(at, block * 4 + i));
  }
  ZINC_DEVICE uint4 value(int at, int dim) const { return *reinterpret_cast<const uint4*>(value_at(at, dim)); }

  // By all 256 threads; they end with the copies under way.
  template <class Kv>
  ZINC_DEVICE void copy_keys(const UnitPages& pages, const KvLayer& kv) const {
    const int at = static_cast<int>(threadIdx.x) % kUnitPositions,
              first = static_cast<int>(threadIdx.x) / kUnitPositions;
    int place;
    const u8* page = pages.find(at, place);
    for (int piece = first; piece < n_pieces; piece += 4) {
      Halves<Kv>::copy_key(key_at(at, piece), page, kv.k_dim, place, piece);
    }
    end_copies();
  }
  template <class Kv>
  ZINC_DEVICE void copy_values(const UnitPages& pages, const KvLayer& kv) const {
    const int at = static_cast<int>(threadIdx.x) / 4, v_dim = padded(kv.v_dim);
    int place;
    const u8* page = pages.find(at, place) + kv.value_begin;
    for (int dim = static_cast<int>(threadIdx.x) % 4 * 8; dim < v_dim; dim += 32) {
      Halves<Kv>::copy_value(value_at(at, dim), page, v_dim, place, dim);
    }
    end_copies();
  }
};

// ---- one unit ----

// 32 of the rows' dimensions with some of the warp's positions: those of the tiles from `first` on.
template <int kAtOnce, int kTiles>
ZINC_DEVICE void score_block(const UnitRows& rows, int block, int first, const uint4 (&key)[kAtOnce],
                             float (&scores)[kTiles][4]) {
  const int quad = lane_id() / 4, i = lane_id() % 4;
  const uint4 a = *reinterpret_cast<const uint4*>(rows.q + quad * rows.q_stride + block * 16 + 4 * i);
  const uint4 b = *reinterpret_cast<const uint4*>(rows.q + (quad + 8) * rows.q_stride + block * 16 + 4 * i);
#pragma unroll
  for (int t = 0; t < kAtOnce; ++t) {
    multiply_halves(scores[first + t], a.x, b.x, a.y, b.y, key[t].x, key[t].y);
    multiply_halves(scores[first + t], a.z, b.z, a.w, b.w, key[t].z, key[t].w);
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

// The scores of R sets of rows; each key is loaded once for all of them.
template <int G, int R, class Source>
ZINC_DEVICE void score_unit(const UnitRows (&rows)[R], const Source& source, int n_blocks, int member,
                            float (&scores)[R][8 / G][4]) {
  constexpr int kTiles = 8 / G, kAtOnce = kTiles < 4 ? kTiles : 4;  // keys in registers beside all scores
#pragma unroll
  for (int r = 0; r < R; ++r) clear(scores[r]);
#pragma unroll 1
  for (int block = 0; block < n_blocks; ++block) {
#pragma unroll
    for (int first = 0; first < kTiles; first += kAtOnce) {
      uint4 key[kAtOnce];
#pragma unroll
      for (int t = 0; t < kAtOnce; ++t) {
        key[t] = source.key((member * kTiles + first + t) * 8 + lane_id() / 4, block, lane_id() % 4);
      }
#pragma unroll
      for (int r = 0; r < R; ++r) score_block(rows[r], block, first, key, scores[r]);
    }
  }
}

// Scores as the softmax sees them; the warp's largest of each row go to the exchange.
template <int G>
ZINC_DEVICE void mask_unit(const UnitRows& rows, int unit, int member, float (&scores)[8 / G][4]) {
  constexpr int kTiles = 8 / G, kEach = 4;
  const int quad = lane_id() / 4, i = lane_id() % 4;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) scores[t][e] *= rows.scale;
  }
  if (rows.softcap > 0) {
#pragma unroll 1
    for (int t = 0; t < kTiles * kEach; ++t) {
      float s = scores[0][0];  // the array turns, so that it can stay in registers
#pragma unroll
      for (int e = 0; e + 1 < kTiles * kEach; ++e)
        scores[e / kEach][e % kEach] = scores[(e + 1) / kEach][(e + 1) % kEach];
      scores[kTiles - 1][kEach - 1] = rows.softcap * tanhf(s / rows.softcap);
    }
  }
  if (!rows.see_all(unit)) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int position = unit * kUnitPositions + (member * kTiles + t) * 8 + 2 * i + e % 2;
        const int newest = rows.newest[e / 2];
        const bool sees =
            position <= newest && position >= rows.oldest && (rows.window == 0 || position > newest - rows.window);
        if (!sees) scores[t][e] = lowest_score();
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = lowest_score();
#pragma unroll
    for (int t = 0; t < kTiles; ++t) largest = fmaxf(largest, fmaxf(scores[t][2 * h], scores[t][2 * h + 1]));
    largest = lanes_max(largest, 4);
    if (i == 0) rows.exchange[member * 16 + quad + 8 * h] = largest;
  }
}

// Scores become weights; the warp's sums of each row go to the exchange. REQUIRES: the group met after mask_unit().
template <int G>
ZINC_DEVICE void soften_unit(const UnitRows& rows, int member, float (&scores)[8 / G][4], Running (&row)[2]) {
  constexpr int kTiles = 8 / G;
  const int quad = lane_id() / 4, i = lane_id() % 4;
  float offset[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = rows.exchange[quad + 8 * h];
#pragma unroll
    for (int w = 1; w < G; ++w) largest = fmaxf(largest, rows.exchange[w * 16 + quad + 8 * h]);
    row[h].largest = largest;
    offset[h] = largest == lowest_score() ? 0.0f : largest;  // where nothing is seen all weights are zero
  }
  float sum[2] = {0, 0};
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      scores[t][e] = power_of_two((scores[t][e] - offset[e / 2]) * kLog2E);
      sum[e / 2] += scores[t][e];
    }
    u32* to = rows.weights + (member * kTiles + t) * 4 + i;
    to[quad * (kWeightStride / 2)] = pack_halves(scores[t][0], scores[t][1]);
    to[(quad + 8) * (kWeightStride / 2)] = pack_halves(scores[t][2], scores[t][3]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] = lanes_sum(sum[h], 4);
    if (i == 0) rows.exchange[(G + member) * 16 + quad + 8 * h] = sum[h];
  }
}

// The unit's sums, and nothing weighed yet. REQUIRES: the group met after soften_unit().
template <int G>
ZINC_DEVICE void begin_weighing(const UnitRows& rows, UnitResult& result) {
  const int quad = lane_id() / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    result.row[h].sum = rows.exchange[G * 16 + quad + 8 * h];
#pragma unroll
    for (int w = 1; w < G; ++w) result.row[h].sum += rows.exchange[(G + w) * 16 + quad + 8 * h];
  }
  clear(result.values);
}

// The values of 16 positions from 16 * k on: v[j] those of position 4 * i + j of them.
ZINC_DEVICE void weigh_sixteen(const UnitRows& rows, int k, const uint4 (&v)[4], UnitResult& result) {
  const int quad = lane_id() / 4, i = lane_id() % 4;
  const uint2 a = *reinterpret_cast<const uint2*>(rows.weights + quad * (kWeightStride / 2) + k * 8 + 2 * i);
  const uint2 b = *reinterpret_cast<const uint2*>(rows.weights + (quad + 8) * (kWeightStride / 2) + k * 8 + 2 * i);
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    const u32 which = t % 2 == 0 ? 0x5410u : 0x7632u;
    const auto word = [](const uint4& x, int w) { return w == 0 ? x.x : w == 1 ? x.y : w == 2 ? x.z : x.w; };
    multiply_halves(result.values[t], a.x, b.x, a.y, b.y, __byte_perm(word(v[0], t / 2), word(v[1], t / 2), which),
                    __byte_perm(word(v[2], t / 2), word(v[3], t / 2), which));
  }
}

// The warp's 64 dimensions of the values, weighed. REQUIRES: the group met after soften_unit().
template <int G, class Source>
ZINC_DEVICE void weigh_unit(const UnitRows& rows, const Source& source, int v_dim, int member, UnitResult& result) {
  const int dim = member * kUnitDims + lane_id() / 4 * 8;
  begin_weighing<G>(rows, result);
  if (member * kUnitDims >= v_dim) return;
#pragma unroll
  for (int k = 0; k < kUnitPositions / 16; ++k) {
    uint4 v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = dim < v_dim ? source.value(k * 16 + lane_id() % 4 * 4 + j, dim) : make_uint4(0, 0, 0, 0);
    }
    weigh_sixteen(rows, k, v, result);
  }
}

// One unit of the group's rows, from its pages. All lanes of the group's warps; member: the warp in it.
template <class Kv, int G>
ZINC_DEVICE void attend_unit(const UnitRows& rows, const KvLayer& kv, const UnitPages& pages, int member,
                             UnitResult& result) {
  const InPages<Kv> source{pages, kv};
  const UnitRows set[1] = {rows};
  float scores[1][8 / G][4];
  score_unit<G>(set, source, padded(kv.k_dim) / 32, member, scores);
  mask_unit<G>(rows, pages.first / kUnitPositions, member, scores[0]);
  group_meets<G>(rows.group);
  soften_unit<G>(rows, member, scores[0], result.row);
  group_meets<G>(rows.group);
  weigh_unit<G>(rows, source, padded(kv.v_dim), member, result);
  group_meets<G>(rows.group);  // the weights have been read
}

// `all` with what came after it. Rows that saw nothing there stay as they are.
ZINC_DEVICE void merge_results(UnitResult& all, const UnitResult& next) {
  float keep[2] = {1, 1}, take[2] = {0, 0};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (next.row[h].largest != lowest_score()) merge(all.row[h], next.row[h], keep[h], take[h]);
  }
#pragma unroll
  for (int t = 0; t < 8; ++t) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (next.row[e / 2].largest != lowest_score()) {
        all.values[t][e] = merged(all.values[t][e], next.values[t][e], keep[e / 2], take[e / 2]);
      }
    }
  }
}
ZINC_DEVICE void clear(UnitResult& result) {
#pragma unroll
  for (int h = 0; h < 2; ++h) result.row[h] = {lowest_score(), 0.0f};
#pragma unroll
  for (int t = 0; t < 8; ++t) {
#pragma unroll
    for (int e = 0; e < 4; ++e) result.values[t][e] = 0;
  }
}

// Rows of queries as halves, `stride` pairs apart, zero past the last number.
ZINC_DEVICE void store_query(u32* to, const float* q, int k_dim, int pair) {
  const int k = 2 * pair;
  to[pair] = pack_halves(k < k_dim ? q[k] : 0.0f, k + 1 < k_dim ? q[k + 1] : 0.0f);
}
ZINC_DEVICE int query_stride(int k_dim) { return padded(k_dim) / 2 + 4; }  // rows start in different banks

// Room of attend_units(), in floats.
template <int G>
constexpr int kChunkRoom = kChunkUnits * 36 * G * 32;

// The units of one chunk for one set of 16 rows, by all groups of the block, merged in order: the result is that of the
// first G warps. `rows` differ in weights, exchange and group only.
template <class Kv, int G>
ZINC_DEVICE void attend_units(const UnitRows& rows, const Step& step, const KvLayer& kv, int seq, int kv_head,
                              int chunk, float* room, UnitResult& result) {
  constexpr int kGroups = kWarps / G, kLanes = G * 32;
  const int member = warp_id() % G, lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int u = warp_id() / G; u < kChunkUnits; u += kGroups) {
    float* to = room + u * 36 * kLanes + lane;
    const int unit = chunk * kChunkUnits + u;
    UnitResult one;
    clear(one);
    if (rows.see_some(unit)) {
      attend_unit<Kv, G>(rows, kv, UnitPages(step, kv, seq, kv_head, unit, rows.oldest, rows.last), member, one);
    }
#pragma unroll
    for (int t = 0; t < 8; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) to[(t * 4 + e) * kLanes] = one.values[t][e];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      to[(32 + 2 * h) * kLanes] = one.row[h].largest;
      to[(33 + 2 * h) * kLanes] = one.row[h].sum;
    }
  }
  __syncthreads();
  clear(result);
  if (warp_id() < G) {
    for (int u = 0; u < kChunkUnits; ++u) {
      const float* from = room + u * 36 * kLanes + lane;
      UnitResult one;
#pragma unroll
      for (int t = 0; t < 8; ++t) {
#pragma unroll
        for (int e = 0; e < 4; ++e) one.values[t][e] = from[(t * 4 + e) * kLanes];
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) one.row[h] = {from[(32 + 2 * h) * kLanes], from[(33 + 2 * h) * kLanes]};
      merge_results(result, one);
    }
  }
  __syncthreads();
}

// Calls with (h, dimension, value) for what a lane has of a result.
template <class Store>
ZINC_DEVICE void for_each_value(const UnitResult& result, int member, int v_dim, const Store& store) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
#pragma unroll
    for (int t = 0; t < 8; ++t) {
      const int dim = member * kUnitDims + 8 * (2 * (lane_id() % 4) + e % 2) + t;
      if (dim < v_dim) store(e / 2, dim, result.values[t][e]);
    }
  }
}

}  // namespace zinc::simt
