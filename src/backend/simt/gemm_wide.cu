// out[m, o] = sum_k x[m, k] * weight[o, k] on Hopper's matrix cores, for many rows of rounded activations. A program of
// this file begins with one format/<f>.h.
// A block stays on its multiprocessor and takes tile after tile of 128 weight rows and up to 128 rows of activations.
// One group of four warps copies: segments of weights as they lie, and columns of activations. Two others multiply, 64
// weight rows each: a lane unpacks the words it needs as a fragment into registers, activations stay in shared memory.
// Scales that are integers are multiplied into the weights first, as two planes of bytes (planes.h), and a segment is
// summed as one integer. Scales that are powers of two are multiplied into numbers of bf16, in which these, the
// activations and their sums are exact; other scales are applied to sums of 32 bytes. A segment's value is that of
// quantized.h, so the results are linear.cu's to the bit.
#include "backend/simt/planes.h"
#include "backend/simt/warpgroup.h"

namespace zinc::simt {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

using F = WeightFormat;

// Whether a format can multiply its scales into bf16 numbers.
template <class F, class = void>
struct Folding {
  static constexpr bool kIs = false;
  static constexpr float kFactor = 1;
};
template <class F>
struct Folding<F, decltype(void(F::kFolded))> {
  static constexpr bool kIs = true;
  static constexpr float kFactor = F::kFolded;
};

// A if so, else B.
template <bool is_so, class A, class B>
struct Either {
  using Type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using Type = B;
};

constexpr WideKind kKind = F::kRoundedBlock == kSegmentElems ? kWideIntegers
                           : Folding<F>::kIs                 ? kWideFolded
                                                             : kWideFloats;
constexpr WideLayout kLayout = wide_layout(F::kHeaderBytes, F::kGroupBytes, kKind);
constexpr int kStages = kLayout.n_stages, kTileSets = kLayout.n_tiles, kStageGroups = kLayout.groups;
constexpr int kLag = kStages - 2;  // stages whose copies are under way before the first is announced
constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);
constexpr int kHalfBytes = kTileRows * 128;  // of a tile's columns: rows of 128 bytes
constexpr int kPanels = kTileRows / kPanelRows;
static_assert(kTileRows == kWideColumns);

// Of the columns of one stage. The sums of activations are halves, in two parts.
struct IntegerScales {
  float x[kWideColumns];
  uint4 low_sums[kWideColumns], high_sums[kWideColumns];
};
struct FloatScales {
  float x[kStageGroups][kWideColumns];
  int sum[kStageGroups][kWideColumns];
};
struct alignas(1024) Stage {
  u8 x[2 * kHalfBytes];
  u8 weights[kPanels][kLayout.panel_bytes];
  Either<kKind == kWideIntegers, IntegerScales, FloatScales>::Type scales;
};
static_assert(sizeof(Stage) == kLayout.stage_bytes && sizeof(Stage::scales) == kLayout.scale_bytes);

struct Tile {
  int part, expert, first_panel;
  int first, n_columns;  // n_columns 0: there are no more tiles
};

struct Shared {
  Stage stages[kStages];
  int results[kTileSets][kWideColumns];  // where the results of each column go
  u32 places[2][kWideColumns];           // where each column begins, in pieces of 16 bytes; for those that copy
  Tile tiles[kTileSets];
  u64 full[kStages], empty[kStages];
};
static_assert(sizeof(Shared::stages) + sizeof(Shared::results) + sizeof(Shared::places) + sizeof(Shared::tiles) +
                  sizeof(Shared::full) + sizeof(Shared::empty) + 8 <=
              wide_shared_bytes(kLayout));
static_assert(wide_shared_bytes(kLayout) <= 227 * 1024);

// Tiles of the same activations follow each other where there are experts, else those of the same weights. Where at
// most half of the blocks would have one more than the others, two share each of these: half of its columns.
ZINC_DEVICE Tile find_tile(const LinearParams& p, int index) {
  Tile tile;
  tile.n_columns = 0;
  const int n_row_tiles = p.n_row_tiles;
  const int n_rows = *p.n_rows * p.per_row;
  const int n_column_tiles = p.expert_ids ? *p.tiles.n_tiles : (n_rows + kWideColumns - 1) / kWideColumns;
  const int n_blocks = static_cast<int>(gridDim.x);
  const int n_tiles = n_row_tiles * n_column_tiles, n_last = n_tiles % n_blocks;
  const int in_last = index - (n_tiles - n_last);
  int half = 0;  // or the first, or the second
  if (!p.expert_ids && in_last >= 0 && 2 * n_last <= n_blocks) {
    index -= in_last - in_last / 2;
    half = 1 + in_last % 2;
  }
  if (index >= n_tiles) return tile;
  int row_tile = p.expert_ids ? index % n_row_tiles : index / n_column_tiles;
  const int column_tile = p.expert_ids ? index / n_row_tiles : index % n_column_tiles;
  for (tile.part = 0; tile.part + 1 < p.n_parts; ++tile.part) {
    const int n_tiles = (p.parts[tile.part].n_out + kTileRows - 1) / kTileRows;
    if (row_tile < n_tiles) break;
    row_tile -= n_tiles;
  }
  tile.first_panel = row_tile * (kTileRows / kPanelRows);
  tile.expert = p.expert_ids ? p.tiles.tiles[3 * column_tile] : 0;
  constexpr int kHalf = kWideColumns / 2;
  tile.first = p.expert_ids ? p.tiles.tiles[3 * column_tile + 1] : column_tile * kWideColumns + half / 2 * kHalf;
  tile.n_columns = p.expert_ids ? p.tiles.tiles[3 * column_tile + 2]
                                : max(0, min(half > 0 ? kHalf : kWideColumns, n_rows - tile.first));
  return tile;
}

ZINC_DEVICE int groups_of(const Matrix& matrix, int segment) {
  return segment + 1 < matrix.n_segments ? kSegmentGroups : matrix.n_last_groups;
}

// ---- copying ----

ZINC_DEVICE void copiers_meet() { meet<128>(1); }

// What one thread of the copying warps has of a tile: a column, a piece of 16 columns, and maybe a panel.
struct Source {
  Tile tile;
  const Matrix* matrix;
  const u8* segment;  // of the thread's panel
  const uint4* x;
  const u32* places;    // of its 16 columns, 8 apart
  const float* scales;  // of the thread's column
  const int* sums;
  const u16* wide;  // likewise

  ZINC_DEVICE Source(const LinearParams& p, int index, int n_tiles_before, int thread, Shared& shared) {
    int* results = shared.results[n_tiles_before % kTileSets];
    if (thread == 0) shared.tiles[n_tiles_before % kTileSets] = find_tile(p, index);
    copiers_meet();
    tile = shared.tiles[n_tiles_before % kTileSets];
    matrix = &p.parts[tile.n_columns > 0 ? tile.part : 0];
    if (tile.n_columns == 0) return;
    const auto row_of = [&](int result) { return p.expert_ids && !p.x_per_used ? result / p.n_used : result; };
    const int at = tile.first + min(thread, tile.n_columns - 1), result = p.expert_ids ? p.tiles.order[at] : at;
    results[thread] = result;
    const long long x_row = row_of(result);
    const int stride = p.rounded.stride;
    scales = p.rounded.scale + x_row * (stride / F::kRoundedBlock);
    sums = p.rounded.sum + x_row * (stride / kGroupElems);
    wide = p.rounded.wide + x_row * (stride / kSegmentElems) * (2 * kSegmentGroups);
    u32* its_places = shared.places[n_tiles_before % 2];
    its_places[thread] = static_cast<u32>(x_row * (stride / (kKind == kWideFolded ? 8 : 16)));
    places = its_places + thread / 16;
    copiers_meet();
    x = kKind == kWideFolded ? reinterpret_cast<const uint4*>(p.rounded.wide)
                             : reinterpret_cast<const uint4*>(p.rounded.q);
    x += thread % 16;
    const int n_panels = (matrix->n_out + kPanelRows - 1) / kPanelRows;
    const int panel = min(tile.first_panel + thread % kPanels, n_panels - 1);  // rows past the last are not written
    segment = matrix->bytes + tile.expert * matrix->matrix_bytes + panel * matrix->panel_bytes;
  }
  // Sixteen lanes copy a column's 256 bytes.
  ZINC_DEVICE void copy_columns(Stage& stage, int thread) {
    u8* to = stage.x + thread % 16 / 8 * kHalfBytes + tile_offset(thread / 16, thread % 8);
#pragma unroll
    for (int i = 0; i < kWideColumns / 8; ++i) {
      if (i * 8 < tile.n_columns) copy_16(to + i * 8 * 128, x + places[8 * i]);
    }
    x += kWideBytes / 16;
  }
  ZINC_DEVICE void copy_scales(IntegerScales& to, int thread, int stage) const {
    copy_async<4>(&to.x[thread], scales + stage);
    if constexpr (F::kHasMin) {
      copy_16(&to.low_sums[thread], wide + stage * (2 * kSegmentGroups));
      copy_16(&to.high_sums[thread], wide + stage * (2 * kSegmentGroups) + kSegmentGroups);
    }
  }
  ZINC_DEVICE void copy_scales(FloatScales& to, int thread, int stage) const {
#pragma unroll
    for (int g = 0; g < kStageGroups; ++g) {
      copy_async<4>(&to.x[g][thread], scales + stage * kStageGroups + g);
      if constexpr (F::kHasMin) copy_async<4>(&to.sum[g][thread], sums + stage * kStageGroups + g);
    }
  }
  // Of one panel, by one thread: a segment, or its header and half of its groups.
  ZINC_DEVICE void copy_weights(u8* to, int stage, u64* full) const {
    constexpr int kHeader = kPanelRows * F::kHeaderBytes, kGroup = kPanelRows * F::kGroupBytes;
    constexpr int kParts = kSegmentGroups / kStageGroups;
    const u8* from = segment + static_cast<long long>(stage / kParts) * kSegmentBytes;
    const int first = stage % kParts * kStageGroups, n = min(kStageGroups, groups_of(*matrix, stage / kParts) - first);
    if constexpr (kParts == 1) {
      copy_reported(to, from, kHeader + n * kGroup, full);
    } else {
      copy_reported(to, from, kHeader, full);
      copy_reported(to + kHeader, from + kHeader + first * kGroup, n * kGroup, full);
    }
  }
  static ZINC_DEVICE void copy_reported(u8* to, const u8* from, int n_bytes, u64* full) {
    barrier_expect(full, n_bytes);
    copy_expected(to, from, n_bytes, full);
  }
};

ZINC_DEVICE int stages_of(const Matrix& matrix) {
  if (kKind != kWideFolded) return matrix.n_segments;
  return 2 * matrix.n_segments - (matrix.n_last_groups <= kStageGroups ? 1 : 0);
}

// A tile's end is followed by the next one's beginning, so that the warps that multiply need not wait; the last has no
// columns. A stage is announced kLag stages later, when its copies have arrived.
ZINC_DEVICE void produce(const LinearParams& p, Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x) - 2 * 128;
  int step = 0, n_tiles = 0;
  const auto announce = [&](int its_step) {
    show_to_matrix_cores();
    barrier_arrive(&shared.full[its_step % kStages]);
  };
  for (int t = static_cast<int>(blockIdx.x);; t += static_cast<int>(gridDim.x), ++n_tiles) {
    Source source(p, t, n_tiles, thread, shared);
    if (source.tile.n_columns == 0) break;
    const int n_stages = stages_of(*source.matrix);
    for (int s = 0; s < n_stages; ++s, ++step) {
      Stage& stage = shared.stages[step % kStages];
      u64* full = &shared.full[step % kStages];
      barrier_wait(&shared.empty[step % kStages], (step / kStages + 1) & 1);
      if (thread < kPanels) source.copy_weights(stage.weights[thread], s, full);
      source.copy_columns(stage, thread);
      source.copy_scales(stage.scales, thread, s);
      end_copies();
      await_copies<kLag>();
      if (step >= kLag) announce(step - kLag);
    }
  }
  await_copies<0>();
  for (int s = max(0, step - kLag); s < step; ++s) announce(s);
  barrier_wait(&shared.empty[step % kStages], (step / kStages + 1) & 1);
  barrier_arrive(&shared.full[step % kStages]);
}

// ---- multiplying ----

// The sums of min * xsum of 16 rows and 8 columns: whole numbers, exactly, in floats.
ZINC_DEVICE void multiply_mins(const u32 (&mins)[2], u32 low, u32 high, float (&d)[4]) {
  for (float& sum : d) sum = 0;
  multiply_halves(d, mins[0], mins[1], mins[0], mins[1], low, high);
}

struct Lane {
  int quad, i, warp;
  int row;  // of its panel, the first of the lane's two, 8 apart
  ZINC_DEVICE Lane() : quad(lane_id() / 4), i(lane_id() % 4), warp(warp_id()), row(warp % 2 * 16 + quad) {}
};

// 32 bytes of each column: k of the stage's eight.
ZINC_DEVICE u64 columns_at(const Stage& stage, int first, int k) {
  return tile_descriptor(shared_address(stage.x) + first * 128) +
         static_cast<u64>((k / 4 * kHalfBytes + k % 4 * 32) >> 4);
}

template <class F>
struct Headers {
  typename F::Header of[2];
  ZINC_DEVICE Headers(const Stage& stage, const Lane& lane)
      : of{F::header(stage.weights[lane.warp / 2], lane.row), F::header(stage.weights[lane.warp / 2], lane.row + 8)} {}
};

// total += the value of a segment whose planes were summed.
template <class F, int N>
ZINC_DEVICE void add_segment(const Stage& stage, const Lane& lane, const int (&sums)[N / 2], float (&total)[N / 2]) {
  const IntegerScales& scales = stage.scales;
  const Headers<F> both(stage, lane);
  const typename F::Header(&headers)[2] = both.of;
  const float d[2] = {headers[0].d() * kPlaneFactor<F>, headers[1].d() * kPlaneFactor<F>};
  float dmin[2] = {0, 0};
  u32 mins[2] = {0, 0};
  if constexpr (F::kHasMin) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      dmin[h] = headers[h].dmin();
      mins[h] = headers[h].two_mins(lane.i);
    }
  }
#pragma unroll
  for (int c = 0; c < N / 8; ++c) {
    float of_mins[4];
    if constexpr (F::kHasMin) {
      multiply_mins(mins, reinterpret_cast<const u32*>(&scales.low_sums[c * 8 + lane.quad])[lane.i],
                    reinterpret_cast<const u32*>(&scales.high_sums[c * 8 + lane.quad])[lane.i], of_mins);
    }
    const float2 x = *reinterpret_cast<const float2*>(&scales.x[c * 8 + 2 * lane.i]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float value = d[e / 2] * static_cast<float>(sums[c * 4 + e]);
      if constexpr (F::kHasMin) value = fmaf(-dmin[e / 2], of_mins[e], value);
      total[c * 4 + e] += value * (e % 2 == 0 ? x.x : x.y);
    }
  }
}

// What a lane multiplies of a segment's group, in both planes.
struct GroupPlanes {
  u32 high[4], low[4];
};

template <class F>
ZINC_DEVICE void unpack(const Stage& stage, const Lane& lane, const typename F::Header (&headers)[2], int g,
                        GroupPlanes& out) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int first, second;
    F::raw_fragment(stage.weights[lane.warp / 2], lane.row + 8 * h, g, lane.i, first, second);
    planes<F>(headers[h], g, 0, first, out.high[h], out.low[h]);
    planes<F>(headers[h], g, 1, second, out.high[h + 2], out.low[h + 2]);
  }
}

// A stage is a segment: the high planes' products, their sums shifted, then the low planes'. Groups with signed scales
// take longer to unpack than to multiply, and the registers of one less are needed.
template <class F, int R>
ZINC_DEVICE void multiply_planes(const Stage& stage, const Lane& lane, int (&sums)[R]) {
  constexpr int kInFlight = F::kSignedScales ? 1 : 2;
  const Headers<F> headers(stage, lane);
  GroupPlanes groups[kSegmentGroups];
#pragma unroll
  for (int g = 0; g < kSegmentGroups; ++g) {
    unpack<F>(stage, lane, headers.of, g, groups[g]);
    products_begin();
    multiply_bytes<F::kSignedScales>(sums, groups[g].high, columns_at(stage, 0, g), g > 0);
    products_end();
    if (g >= kInFlight) await_products<kInFlight>();
  }
  await_products<0>();
  take_results(sums);
#pragma unroll
  for (int i = 0; i < R; ++i) sums[i] <<= kPlaneShift<F>;
  products_begin();
#pragma unroll
  for (int g = 0; g < kSegmentGroups; ++g) multiply_bytes<false>(sums, groups[g].low, columns_at(stage, 0, g), 1);
  products_end();
  await_products<0>();
  take_results(sums);
}

// What a lane multiplies of a group, for one matrix instruction on bytes or two on bf16 numbers.
template <class F>
ZINC_DEVICE void unpack_group(const Stage& stage, const Lane& lane, const Headers<F>& headers, int g, int scale_of,
                              u32 (&a)[Folding<F>::kIs ? 2 : 1][4]) {
  const u8* panel = stage.weights[lane.warp / 2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if constexpr (Folding<F>::kIs) {
      u32 pairs[4];
      F::scaled_pairs(panel, lane.row + 8 * h, g, lane.i, headers.of[h], scale_of, pairs);
#pragma unroll
      for (int k = 0; k < 4; ++k) a[k / 2][h + k % 2 * 2] = pairs[k];
    } else {
      int first, second;
      F::fragment(panel, lane.row + 8 * h, g, lane.i, first, second);
      a[0][h] = static_cast<u32>(first);
      a[0][h + 2] = static_cast<u32>(second);
    }
  }
}

ZINC_DEVICE void multiply_group(const Stage& stage, int g, int first, const u32 (&a)[1][4], int (&dots)[32]) {
  products_begin();
  multiply_bytes<true>(dots, a[0], columns_at(stage, first, g), 0);
  products_end();
}
ZINC_DEVICE void multiply_group(const Stage& stage, int g, int first, const u32 (&a)[2][4], float (&dots)[32]) {
  products_begin();
  multiply_halves(dots, a[0], columns_at(stage, first, 2 * g), 0);
  multiply_halves(dots, a[1], columns_at(stage, first, 2 * g + 1), 1);
  products_end();
}

// Adds a group's dots of 64 columns, from `first` on, to their segment's values, once they are there.
template <class F, class Dot>
ZINC_DEVICE void add_group(const FloatScales& scales, const Lane& lane, int g, int first, const Headers<F>& headers,
                           int scale_of, Dot (&dots)[32], float* values) {
  float2 x[8];  // loaded before the wait
#pragma unroll
  for (int c = 0; c < 8; ++c) x[c] = *reinterpret_cast<const float2*>(&scales.x[g][first + c * 8 + 2 * lane.i]);
  float row[2] = {1, 1}, min[2] = {0, 0};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if constexpr (!Folding<F>::kIs) row[h] = headers.of[h].scale(scale_of);
    if constexpr (F::kHasMin) min[h] = headers.of[h].min(scale_of);
  }
  await_products<0>();
  take_results(dots);
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    float2 sum = {0, 0};
    if constexpr (F::kHasMin) {
      const int2 whole = *reinterpret_cast<const int2*>(&scales.sum[g][first + c * 8 + 2 * lane.i]);
      sum = make_float2(x[c].x * static_cast<float>(whole.x), x[c].y * static_cast<float>(whole.y));
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float factor = e % 2 == 0 ? x[c].x : x[c].y, dot = static_cast<float>(dots[c * 4 + e]);
      float& value = values[c * 4 + e];
      value = fmaf(dot, Folding<F>::kIs ? factor : row[e / 2] * factor, value);
      if constexpr (F::kHasMin) value = fmaf(min[e / 2], e % 2 == 0 ? sum.x : sum.y, value);
    }
  }
}

// A stage: a segment, or half of one, the second if part is 1. Groups past a row's end have activations and scales of
// zero.
template <class F, int N, int part>
ZINC_DEVICE void multiply_groups(const Stage& stage, const Lane& lane, float (&values)[N / 2]) {
  constexpr int kFirst = part * kStageGroups;
  const Headers<F> headers(stage, lane);
#pragma unroll
  for (int g = 0; g < kStageGroups; ++g) {
    u32 a[Folding<F>::kIs ? 2 : 1][4];
    unpack_group<F>(stage, lane, headers, g, kFirst + g, a);
#pragma unroll
    for (int first = 0; first < N; first += 64) {
      typename Either<Folding<F>::kIs, float, int>::Type dots[32];
      multiply_group(stage, g, first, a, dots);
      add_group<F>(stage.scales, lane, g, first, headers, kFirst + g, dots, values + first / 2);
    }
  }
}

// Where each of the lane's results goes: store(which, place, half of the rows).
template <int N, class Store>
ZINC_DEVICE void for_each_place(const Tile& tile, const int* results, const Lane& lane, int n_out, int o,
                                const Store& store) {
#pragma unroll
  for (int c = 0; c < N / 8; ++c) {
    const int first = c * 8 + 2 * lane.i;
    const int2 two = *reinterpret_cast<const int2*>(results + first);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (first + k >= tile.n_columns) continue;
      const long long at = static_cast<long long>(k == 0 ? two.x : two.y) * n_out + o;
      store(c * 4 + k, at, 0);
      store(c * 4 + 2 + k, at + 8, 1);
    }
  }
}

template <int N>
ZINC_DEVICE void write_tile(const LinearParams& p, const Tile& tile, const int* results, const Lane& lane,
                            float (&total)[N / 2]) {
  const int n_out = p.parts[tile.part].n_out;
  const int o = tile.first_panel * kPanelRows + lane.warp * 16 + lane.quad;
  const bool is_inside[2] = {o < n_out, o + 8 < n_out};
  if (Folding<F>::kIs || p.expert_scales[tile.part]) {
    const float factor = p.expert_scales[tile.part] ? p.expert_scales[tile.part][tile.expert] : 1.0f;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) total[i] = total[i] * Folding<F>::kFactor * factor;
  }
  if (p.biases[tile.part]) {
    const float* bias = p.biases[tile.part] + static_cast<long long>(tile.expert) * n_out + o;
    const float its[2] = {is_inside[0] ? bias[0] : 0.0f, is_inside[1] ? bias[8] : 0.0f};
#pragma unroll
    for (int i = 0; i < N / 2; ++i) total[i] += its[i % 4 / 2];
  }
  if (p.added) {
    for_each_place<N>(tile, results, lane, n_out, o, [&](int i, long long at, int h) {
      if (is_inside[h]) p.outs[tile.part][at] = p.added[at] + total[i];
    });
  } else {
    float* out = p.outs[tile.part];
    for_each_place<N>(tile, results, lane, n_out, o, [&](int i, long long at, int h) {
      if (is_inside[h]) out[at] = total[i];
    });
  }
}

// The stages in turn, each given back once it is no longer read.
struct Turns {
  Shared& shared;
  int step = 0;
  ZINC_DEVICE const Stage& take() const {
    barrier_wait(&shared.full[step % kStages], step / kStages & 1);
    return shared.stages[step % kStages];
  }
  ZINC_DEVICE void give_back() {
    __syncwarp();
    if (lane_id() == 0) barrier_arrive(&shared.empty[step % kStages]);
    ++step;
  }
};

template <class F, int N>
ZINC_DEVICE void multiply_integers(int n_segments, const Lane& lane, Turns& turns, float (&total)[N / 2]) {
  for (int s = 0; s < n_segments; ++s) {
    const Stage& stage = turns.take();
    int sums[N / 2];
    multiply_planes<F>(stage, lane, sums);
    add_segment<F, N>(stage, lane, sums, total);
    turns.give_back();
  }
}

template <class F, int N>
ZINC_DEVICE void multiply_floats(const Matrix& matrix, const Lane& lane, Turns& turns, float (&total)[N / 2]) {
  for (int s = 0; s < matrix.n_segments; ++s) {
    float values[N / 2] = {};
    multiply_groups<F, N, 0>(turns.take(), lane, values);
    turns.give_back();
    if (Folding<F>::kIs && groups_of(matrix, s) > kStageGroups) {
      multiply_groups<F, N, Folding<F>::kIs ? 1 : 0>(turns.take(), lane, values);
      turns.give_back();
    }
#pragma unroll
    for (int i = 0; i < N / 2; ++i) total[i] += values[i];
  }
}

template <class F, int N>
ZINC_DEVICE void multiply_tile(const LinearParams& p, const Tile& tile, const int* results, Turns& turns) {
  const Lane lane;
  const Matrix& matrix = p.parts[tile.part];
  float total[N / 2] = {};
  if constexpr (F::kRoundedBlock == kSegmentElems) {
    multiply_integers<F, N>(matrix.n_segments, lane, turns, total);
  } else {
    multiply_floats<F, N>(matrix, lane, turns, total);
  }
  write_tile<N>(p, tile, results, lane, total);
}

ZINC_DEVICE void multiply_tiles(const LinearParams& p, Shared& shared) {
  Turns turns{shared};
  for (int n_tiles = 0;; ++n_tiles) {
    turns.take();  // so the tile is known
    const Tile tile = shared.tiles[n_tiles % kTileSets];
    const int* results = shared.results[n_tiles % kTileSets];
    if (tile.n_columns == 0) return;
    if (tile.n_columns <= 64) {
      multiply_tile<F, 64>(p, tile, results, turns);
    } else if (kKind == kWideIntegers && tile.n_columns <= 96) {
      multiply_tile<F, kKind == kWideIntegers ? 96 : 128>(p, tile, results, turns);
    } else {
      multiply_tile<F, 128>(p, tile, results, turns);
    }
  }
}

// Of a thread; together they are what the block begins with.
constexpr int kMultiplyRegisters = kKind == kWideIntegers ? 224 : 216;
constexpr int kCopyRegisters = 3 * 168 - 2 * kMultiplyRegisters;

// Grid: as many blocks as multiprocessors.
extern "C" __global__ void __launch_bounds__(kWideThreads, 1) gemm_wide(__grid_constant__ const LinearParams p) {
  extern __shared__ __align__(1024) u8 room[];
  Shared& shared = *reinterpret_cast<Shared*>(room);
  let_next_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&shared.full[i], 128);
      barrier_init(&shared.empty[i], 8);
    }
    end_opening();
  }
  __syncthreads();
  wait_for_previous();
  if (warp_id() >= 8) {
    give_registers<kCopyRegisters>();
    produce(p, shared);
  } else {
    take_registers<kMultiplyRegisters>();
    multiply_tiles(p, shared);
  }
}

#else
extern "C" __global__ void gemm_wide(__grid_constant__ const LinearParams) {}  // never launched elsewhere
#endif

}  // namespace zinc::simt
