// out[m, o] = sum_k x[m, k] * weight[o, k] on Hopper's matrix cores, for many rows of rounded activations. A program of
// this file begins with one format/<f>.h.
// A block stays on its multiprocessor and takes tile after tile of 128 weight rows and up to 128 rows of activations.
// One group of four warps unpacks segments of weights into shared memory, two others multiply, 64 weight rows each.
// Scales that are integers are multiplied into the weights first, as two planes of bytes (planes.h), and a segment is
// summed as one integer; float scales are applied to sums of 32. A segment's value is that of quantized.h, so the
// results are linear.cu's to the bit.
#include "backend/simt/planes.h"
#include "backend/simt/warpgroup.h"

namespace zinc::simt {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

using F = WeightFormat;
constexpr bool kIntegerScales = F::kRoundedBlock == kSegmentElems;
constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);
constexpr int kPlanes = kIntegerScales ? 2 : 1, kHalfBytes = kTileRows * 128, kPlaneBytes = 2 * kHalfBytes;
constexpr int kStages = 2, kScaleSets = 3, kTileSets = 4;  // sets are read after their stage is given back
static_assert(kTileRows == kWideColumns);

// Tiles of 128 inputs: halves of a segment.
struct Stage {
  u8 weights[kPlanes * kPlaneBytes];
  u8 x[kPlaneBytes];
};

// Of one segment: its integers' factors, the minima and the sums of activations as halves, sums in two parts.
struct IntegerScales {
  float2 row[kTileRows];  // d, dmin
  uint4 mins[kTileRows];
  uint4 low_sums[kWideColumns], high_sums[kWideColumns];
  float x[kWideColumns];
};
struct FloatScales {
  float row[kSegmentGroups][kTileRows], min[kSegmentGroups][kTileRows];
  float x[kSegmentGroups][kWideColumns], sum[kSegmentGroups][kWideColumns];  // sum: times its scale
};
template <bool is_integer>
struct ScalesOf {
  using Type = IntegerScales;
};
template <>
struct ScalesOf<false> {
  using Type = FloatScales;
};

struct Tile {
  int part, expert, first_panel;
  int first, n_columns;  // n_columns 0: there are no more tiles
};

struct Shared {
  Stage stages[kStages];
  typename ScalesOf<kIntegerScales>::Type scales[kScaleSets];
  int results[kTileSets][kWideColumns];  // where the results of each column go
  Tile tiles[kTileSets];
  u64 full[kStages], empty[kStages];
};

// Tiles of the same activations follow each other where there are experts, else those of the same weights.
ZINC_DEVICE Tile find_tile(const LinearParams& p, int index) {
  Tile tile;
  tile.n_columns = 0;
  int n_row_tiles = 0;
  for (int part = 0; part < p.n_parts; ++part) n_row_tiles += (p.parts[part].n_out + kTileRows - 1) / kTileRows;
  const int n_rows = *p.n_rows * p.per_row;
  const int n_column_tiles = p.expert_ids ? *p.tiles.n_tiles : (n_rows + kWideColumns - 1) / kWideColumns;
  if (index >= n_row_tiles * n_column_tiles) return tile;
  int row_tile = p.expert_ids ? index % n_row_tiles : index / n_column_tiles;
  const int column_tile = p.expert_ids ? index / n_row_tiles : index % n_column_tiles;
  for (tile.part = 0; tile.part + 1 < p.n_parts; ++tile.part) {
    const int n_tiles = (p.parts[tile.part].n_out + kTileRows - 1) / kTileRows;
    if (row_tile < n_tiles) break;
    row_tile -= n_tiles;
  }
  tile.first_panel = row_tile * (kTileRows / kPanelRows);
  tile.expert = p.expert_ids ? p.tiles.tiles[3 * column_tile] : 0;
  tile.first = p.expert_ids ? p.tiles.tiles[3 * column_tile + 1] : column_tile * kWideColumns;
  tile.n_columns = p.expert_ids ? p.tiles.tiles[3 * column_tile + 2] : min(kWideColumns, n_rows - tile.first);
  return tile;
}

// ---- unpacking ----

ZINC_DEVICE void producers_meet() { asm volatile("bar.sync 1, 128;" ::: "memory"); }


ZINC_DEVICE void store_pieces(u8* plane, int row, int g, const u32 (&words)[8]) {
  u8* half = plane + g / 4 * kHalfBytes;
  *reinterpret_cast<uint4*>(half + tile_offset(row, g % 4 * 2)) = make_uint4(words[0], words[1], words[2], words[3]);
  *reinterpret_cast<uint4*>(half + tile_offset(row, g % 4 * 2 + 1)) =
      make_uint4(words[4], words[5], words[6], words[7]);
}

template <class F>
ZINC_DEVICE void store_group(Stage& stage, int row, int g, const typename F::Header& header,
                             const typename F::Raw& raw) {
  if constexpr (F::kRoundedBlock == kSegmentElems) {
    u32 high[8], low[8];
    planes<F>(header, g, raw, high, low);
    store_pieces(stage.weights, row, g, high);
    store_pieces(stage.weights + kPlaneBytes, row, g, low);
  } else {
    int w[8];
    F::words(raw, w);
    u32 words[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = static_cast<u32>(w[i]);
    store_pieces(stage.weights, row, g, words);
  }
}

ZINC_DEVICE u32 two_halves(int a, int b) {
  return float_to_half(static_cast<float>(a)) | static_cast<u32>(float_to_half(static_cast<float>(b))) << 16;
}

template <class F>
ZINC_DEVICE void store_row_scales(IntegerScales& to, int row, const typename F::Header& header) {
  float dmin = 0;
  if constexpr (F::kHasMin) {
    dmin = header.dmin();
    to.mins[row] = make_uint4(two_halves(header.min(0), header.min(1)), two_halves(header.min(2), header.min(3)),
                              two_halves(header.min(4), header.min(5)), two_halves(header.min(6), header.min(7)));
  }
  to.row[row] = make_float2(header.d() * kPlaneFactor<F>, dmin);
}
template <class F>
ZINC_DEVICE void store_row_scales(FloatScales& to, int row, const typename F::Header& header) {
#pragma unroll
  for (int g = 0; g < kSegmentGroups; ++g) {
    to.row[g][row] = header.scale(g);
    if constexpr (F::kHasMin) to.min[g][row] = header.min(g);
  }
}

// What goes with one column's segment, on its way from memory.
struct ColumnScales {
  int sums[kSegmentGroups];
  float scales[kIntegerScales ? 1 : kSegmentGroups];

  ZINC_DEVICE void load(const Rounded& x, long long row, int segment) {
    const long long group = row * (x.stride / kGroupElems) + segment * kSegmentGroups;
    if constexpr (F::kHasMin) {
#pragma unroll
      for (int g = 0; g < kSegmentGroups; ++g) sums[g] = x.sum[group + g];
    }
    if constexpr (kIntegerScales) {
      scales[0] = x.scale[row * (x.stride / kSegmentElems) + segment];
    } else {
#pragma unroll
      for (int g = 0; g < kSegmentGroups; ++g) scales[g] = x.scale[group + g];
    }
  }
  ZINC_DEVICE void store(IntegerScales& to, int column) const {
    to.x[column] = scales[0];
    if constexpr (F::kHasMin) {
      u32 low[4], high[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int a = sums[2 * i], b = sums[2 * i + 1];
        low[i] = two_halves(a & 63, b & 63);
        high[i] = two_halves(a - (a & 63), b - (b & 63));
      }
      to.low_sums[column] = make_uint4(low[0], low[1], low[2], low[3]);
      to.high_sums[column] = make_uint4(high[0], high[1], high[2], high[3]);
    }
  }
  ZINC_DEVICE void store(FloatScales& to, int column) const {
    if constexpr (!kIntegerScales) {
#pragma unroll
      for (int g = 0; g < kSegmentGroups; ++g) {
        to.x[g][column] = scales[g];
        if constexpr (F::kHasMin) to.sum[g][column] = scales[g] * static_cast<float>(sums[g]);
      }
    }
  }
};

ZINC_DEVICE int groups_of(const Matrix& matrix, int segment) {
  return segment + 1 < matrix.n_segments ? kSegmentGroups : matrix.n_last_groups;
}

// What one thread of the unpacking warps has of a tile: a weight row, a column, and pieces of 16 columns.
struct Source {
  Tile tile;
  const Matrix* matrix;
  const u8* segment;  // of the row's panel
  const uint4* x;
  u32 pieces[kWideColumns / 8];  // places in x
  int x_row;

  ZINC_DEVICE Source(const LinearParams& p, int index, int n_tiles_before, int thread, Shared& shared)
      : tile(find_tile(p, index)) {
    int* results = shared.results[n_tiles_before % kTileSets];
    if (thread == 0) shared.tiles[n_tiles_before % kTileSets] = tile;
    matrix = &p.parts[tile.n_columns > 0 ? tile.part : 0];
    if (tile.n_columns == 0) return;
    const auto row_of = [&](int result) { return p.expert_ids && !p.x_per_used ? result / p.n_used : result; };
    const int at = tile.first + min(thread, tile.n_columns - 1), result = p.expert_ids ? p.tiles.order[at] : at;
    results[thread] = result;
    x_row = row_of(result);
    producers_meet();
#pragma unroll
    for (int i = 0; i < kWideColumns / 8; ++i) {
      const long long row = row_of(results[thread / 16 + 8 * i]);
      pieces[i] = static_cast<u32>(row * (p.rounded.stride / 16) + thread % 16);
    }
    x = reinterpret_cast<const uint4*>(p.rounded.q);
    const int n_panels = (matrix->n_out + kPanelRows - 1) / kPanelRows;
    const int panel = min(tile.first_panel + thread / kPanelRows, n_panels - 1);  // rows past the last are not written
    segment = matrix->bytes + tile.expert * matrix->matrix_bytes + panel * matrix->panel_bytes;
  }
  // Sixteen lanes copy a column's 256 bytes.
  ZINC_DEVICE void copy_columns(Stage& stage, int thread) {
    u8* half = stage.x + thread % 16 / 8 * kHalfBytes;
#pragma unroll
    for (int i = 0; i < kWideColumns / 8; ++i) {
      const int column = thread / 16 + 8 * i;
      if (i * 8 < tile.n_columns) copy_16(half + tile_offset(column, thread % 8), x + pieces[i]);
    }
    x += kSegmentElems / 16;
    asm volatile("cp.async.commit_group;");
  }
};

// One thread per weight row, and per column. A tile's end is followed by the next one's beginning, so that the warps
// that multiply need not wait; the last has no columns.
ZINC_DEVICE void produce(const LinearParams& p, Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x) - 2 * 128;
  int step = 0, n_tiles = 0;
  for (int t = static_cast<int>(blockIdx.x);; t += static_cast<int>(gridDim.x), ++n_tiles) {
    Source source(p, t, n_tiles, thread, shared);
    if (source.tile.n_columns == 0) break;
    const Matrix& matrix = *source.matrix;
    for (int s = 0; s < matrix.n_segments; ++s, ++step) {
      const int n_groups = groups_of(matrix, s);
      LoadedSegment<F> loaded;
      loaded.load(source.segment, lane_id(), n_groups);
      ColumnScales column;
      column.load(p.rounded, source.x_row, s);
      source.segment += kSegmentBytes;
      Stage& stage = shared.stages[step % kStages];
      barrier_wait(&shared.empty[step % kStages], (step / kStages + 1) & 1);
      source.copy_columns(stage, thread);
#pragma unroll
      for (int g = 0; g < kSegmentGroups; ++g) {
        if (g < n_groups) store_group<F>(stage, thread, g, loaded.header, loaded.groups[g]);
      }
      auto& scales = shared.scales[step % kScaleSets];
      store_row_scales<F>(scales, thread, loaded.header);
      column.store(scales, thread);
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      show_to_matrix_cores();
      barrier_arrive(&shared.full[step % kStages]);
    }
  }
  barrier_wait(&shared.empty[step % kStages], (step / kStages + 1) & 1);
  barrier_arrive(&shared.full[step % kStages]);
}

// ---- multiplying ----

// The sums of min * xsum of 16 rows and 8 columns: whole numbers, exactly, in floats.
ZINC_DEVICE void multiply_mins(const u32 (&mins)[2], u32 low, u32 high, float (&d)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%4,%5}, {%6,%7}, {%8,%8,%8,%8};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(mins[0]), "r"(mins[1]), "r"(low), "r"(high), "f"(0.0f));
}

struct Lane {
  int row, quad, i, group;  // row: the first of its two, 8 apart
  ZINC_DEVICE Lane() : quad(lane_id() / 4), i(lane_id() % 4), group(warp_id() / 4) {
    row = warp_id() * 16 + quad;
  }
};

// total += the value of a segment whose planes were summed.
template <class F, int N>
ZINC_DEVICE void add_segment(const IntegerScales& scales, const Lane& lane, const int (&sums)[N / 2],
                             float (&total)[N / 2]) {
  const float2 row[2] = {scales.row[lane.row], scales.row[lane.row + 8]};
  u32 mins[2] = {0, 0};
  if constexpr (F::kHasMin) {
#pragma unroll
    for (int h = 0; h < 2; ++h) mins[h] = reinterpret_cast<const u32*>(&scales.mins[lane.row + 8 * h])[lane.i];
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
      float value = row[e / 2].x * static_cast<float>(sums[c * 4 + e]);
      if constexpr (F::kHasMin) value = fmaf(-row[e / 2].y, of_mins[e], value);
      total[c * 4 + e] += value * (e % 2 == 0 ? x.x : x.y);
    }
  }
}

// One plane of a segment's weights times its activations.
template <bool is_signed, int R>
ZINC_DEVICE void multiply_plane(u64 weights, u64 x, bool is_first, int (&sums)[R]) {
  products_begin();
#pragma unroll
  for (int k = 0; k < kSegmentGroups; ++k) {
    const u64 at = static_cast<u64>((k / 4 * kHalfBytes + k % 4 * 32) >> 4);
    multiply_bytes<is_signed>(sums, weights + at, x + at, is_first && k == 0 ? 0 : 1);
  }
  products_end();
}

template <class F, int R>
ZINC_DEVICE void multiply_planes(const Stage& stage, const Lane& lane, int (&sums)[R]) {
  const u64 weights = tile_descriptor(shared_address(stage.weights) + lane.group * (kHalfBytes / 2));
  const u64 x = tile_descriptor(shared_address(stage.x));
  multiply_plane<F::kSignedScales>(weights, x, true, sums);
#pragma unroll
  for (int i = 0; i < R; ++i) sums[i] <<= kPlaneShift<F>;
  multiply_plane<false>(weights + (kPlaneBytes >> 4), x, false, sums);
}

// 64 columns from `first` on, a group of inputs at a time.
template <class F>
ZINC_DEVICE void add_groups(const Stage& stage, const FloatScales& scales, const Lane& lane, int first, int n_groups,
                            float* total) {
  const u64 weights = tile_descriptor(shared_address(stage.weights) + lane.group * (kHalfBytes / 2));
  const u64 x = tile_descriptor(shared_address(stage.x) + first * 128);
  float values[32] = {};
#pragma unroll
  for (int g = 0; g < kSegmentGroups; ++g) {
    if (g >= n_groups) break;
    int dots[32];
    const u64 at = static_cast<u64>((g / 4 * kHalfBytes + g % 4 * 32) >> 4);
    products_begin();
    multiply_bytes<true>(dots, weights + at, x + at, 0);
    products_end();
    const float row[2] = {scales.row[g][lane.row], scales.row[g][lane.row + 8]};
    float min[2] = {0, 0};
    if constexpr (F::kHasMin) {
      min[0] = scales.min[g][lane.row];
      min[1] = scales.min[g][lane.row + 8];
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int column = first + c * 8 + 2 * lane.i;
      const float2 scale = *reinterpret_cast<const float2*>(&scales.x[g][column]);
      float2 sum = {0, 0};
      if constexpr (F::kHasMin) sum = *reinterpret_cast<const float2*>(&scales.sum[g][column]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& value = values[c * 4 + e];
        value = fmaf(static_cast<float>(dots[c * 4 + e]), row[e / 2] * (e % 2 == 0 ? scale.x : scale.y), value);
        if constexpr (F::kHasMin) value = fmaf(min[e / 2], e % 2 == 0 ? sum.x : sum.y, value);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) total[i] += values[i];
}

template <int N>
ZINC_DEVICE void write_tile(const LinearParams& p, const Tile& tile, const int* results, const Lane& lane,
                            const float (&total)[N / 2]) {
  const Matrix& matrix = p.parts[tile.part];
  const float* bias = p.biases[tile.part];
  const float factor = p.expert_scales[tile.part] ? p.expert_scales[tile.part][tile.expert] : 1.0f;
  float* out = p.outs[tile.part];
#pragma unroll
  for (int c = 0; c < N / 8; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int o = tile.first_panel * kPanelRows + lane.row + e / 2 * 8, column = c * 8 + 2 * lane.i + e % 2;
      if (o >= matrix.n_out || column >= tile.n_columns) continue;
      float value = total[c * 4 + e] * factor;
      if (bias) value += bias[static_cast<long long>(tile.expert) * matrix.n_out + o];
      const long long at = static_cast<long long>(results[column]) * matrix.n_out + o;
      out[at] = p.added ? p.added[at] + value : value;
    }
  }
}

template <class F, int N>
ZINC_DEVICE void multiply_tile(const LinearParams& p, const Tile& tile, const int* results, Shared& shared, int& step) {
  const Lane lane;
  const Matrix& matrix = p.parts[tile.part];
  float total[N / 2] = {};
  for (int s = 0; s < matrix.n_segments; ++s, ++step) {
    const Stage& stage = shared.stages[step % kStages];
    const auto& scales = shared.scales[step % kScaleSets];
    barrier_wait(&shared.full[step % kStages], step / kStages & 1);
    if constexpr (F::kRoundedBlock == kSegmentElems) {
      int sums[N / 2];
      multiply_planes<F>(stage, lane, sums);
      if (lane_id() == 0) barrier_arrive(&shared.empty[step % kStages]);
      add_segment<F, N>(scales, lane, sums, total);
    } else {
#pragma unroll
      for (int half = 0; half < N / 64; ++half) {
        add_groups<F>(stage, scales, lane, half * 64, groups_of(matrix, s), total + half * 32);
      }
      if (lane_id() == 0) barrier_arrive(&shared.empty[step % kStages]);
    }
  }
  write_tile<N>(p, tile, results, lane, total);
}

ZINC_DEVICE void multiply_tiles(const LinearParams& p, Shared& shared) {
  int step = 0;
  for (int n_tiles = 0;; ++n_tiles) {
    barrier_wait(&shared.full[step % kStages], step / kStages & 1);  // so the tile is known
    const Tile tile = shared.tiles[n_tiles % kTileSets];
    const int* results = shared.results[n_tiles % kTileSets];
    if (tile.n_columns == 0) return;
    if (tile.n_columns <= 64) {
      multiply_tile<F, 64>(p, tile, results, shared, step);
    } else if (kIntegerScales && tile.n_columns <= 96) {
      multiply_tile<F, kIntegerScales ? 96 : 128>(p, tile, results, shared, step);
    } else {
      multiply_tile<F, 128>(p, tile, results, shared, step);
    }
  }
}

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
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  wait_for_previous();
  if (warp_id() >= 8) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 136;");
    produce(p, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 184;");
    multiply_tiles(p, shared);
  }
}

#else
extern "C" __global__ void gemm_wide(__grid_constant__ const LinearParams) {}  // never launched elsewhere
#endif

}  // namespace zinc::simt
