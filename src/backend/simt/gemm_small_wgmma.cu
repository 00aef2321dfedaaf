// out[t, o] = sum_k x[t, k] * weight[o, k] with Hopper's wgmma, for 9 to 256 tokens and formats with integer scales. A
// program of this file begins with one format/<f>.h; activations are quantized by an earlier launch, as an image of the
// shared memory that wgmma reads (Q8Activation::image). Persistent, warp-specialized: a block takes tile after tile of
// 64 or 128 weight rows by kShape.n_columns tokens. Two producer warps copy weights and activations, a K segment per
// stage; the first weights are copied before the launch waits for its activations.
// A team is a warpgroup: it multiplies the 64 rows of its row group by every kShape.n_k_splits-th segment, as two byte
// planes (byte_planes.h). Segments are added in order, whichever team multiplies them, so results are bit-identical to
// linear.cu: in registers, or, if teams share the segments, in shared memory.
#include "backend/simt/byte_planes.h"
#include "backend/simt/wgmma.h"

namespace zinc::simt {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

using F = WeightFormat;
static_assert(F::kQ8Block == kSegmentElems, "integer scales");
constexpr int kColumns = kShape.n_columns, kRowGroups = kShape.n_row_groups, kSplits = kShape.n_k_splits;
constexpr int kTeams = kRowGroups * kSplits, kStages = kShape.n_stages, kPanels = 2 * kRowGroups;  // kPanels: of a tile
constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);
constexpr int kColumnTiles = kColumns / 8;  // of wgmma's D, 8 columns each

struct alignas(1024) Stage {
  u8 x[2][kColumns * 128];  // 128 inputs of each token, swizzled; then the next 128
  u8 weights[kPanels][kSegmentBytes];
  float x_scales[kColumns];
  uint4 sums[kColumns][2];  // of the groups of 32 inputs, as f16 in two parts
};
struct Shared {
  Stage stages[kStages];
  float4 totals[kRowGroups][kSplits > 1 ? kColumnTiles : 1][128];  // [team thread]
  Mbarrier full[kStages], empty[kStages];
  int n_added[kRowGroups][4];  // segments added to the totals, by each warp's rows
};
static_assert(sizeof(Stage) == gemm_small_wgmma_stage_bytes(kShape, kSegmentBytes));
static_assert(sizeof(Shared) <= gemm_small_wgmma_smem_bytes(kShape, kSegmentBytes));

// ---- work ----

struct Tile {
  int part, first_panel, first_column;
};

// The block's tiles: every gridDim.x-th. Consecutive tiles share weights.
struct Work {
  int n_tiles, n_column_tiles;
  ZINC_DEVICE explicit Work(const LinearParams& p)
      : n_tiles(0), n_column_tiles((*p.n_rows * p.vectors_per_row + kColumns - 1) / kColumns) {
    for (int part = 0; part < p.n_parts; ++part) n_tiles += row_tiles_of(p.parts[part]);
    n_tiles *= n_column_tiles;
  }
  static ZINC_DEVICE int row_tiles_of(const Matrix& matrix) {
    return (matrix.n_out + kPanels * kPanelRows - 1) / (kPanels * kPanelRows);
  }
  ZINC_DEVICE Tile tile(const LinearParams& p, int index) const {
    Tile tile;
    int row_tile = index / n_column_tiles;
    tile.first_column = (index - row_tile * n_column_tiles) * kColumns;
    for (tile.part = 0; tile.part + 1 < p.n_parts && row_tile >= row_tiles_of(p.parts[tile.part]); ++tile.part) {
      row_tile -= row_tiles_of(p.parts[tile.part]);
    }
    tile.first_panel = row_tile * kPanels;
    return tile;
  }
};

// Iterates over every `step`-th segment of the block's tiles.
struct SegmentCursor {
  int tile, segment, index;  // index: of the segment over all tiles of the block
  ZINC_DEVICE explicit SegmentCursor(int k_segments, int first)
      : tile(static_cast<int>(blockIdx.x)), segment(0), index(0) {
    advance(k_segments, first);
  }
  ZINC_DEVICE void advance(int k_segments, int step) {
    index += step;
    for (segment += step; segment >= k_segments; segment -= k_segments) tile += static_cast<int>(gridDim.x);
  }
};

// ---- producers ----

// A lane's copies: the same bytes of every stage of a tile.
struct StageCopy {
  const u8* from;
  long long segment_stride;
  int to, n_bytes;  // to: offset in the stage

  template <CacheHint hint>
  ZINC_DEVICE void run(Shared& shared, const SegmentCursor& at) const {
    const int stage = at.index % kStages;
    bulk_copy<hint>(reinterpret_cast<u8*>(&shared.stages[stage]) + to, from + at.segment * segment_stride, n_bytes,
                    &shared.full[stage]);
  }
};

// A lane per panel of the tile.
ZINC_DEVICE StageCopy weight_copy(const LinearParams& p, const Tile& tile) {
  const Matrix& matrix = p.parts[tile.part];
  const int n_panels = (matrix.n_out + kPanelRows - 1) / kPanelRows;
  const int panel = min(tile.first_panel + lane_id(), n_panels - 1);  // rows past the last are not stored
  return {matrix.bytes + panel * matrix.panel_bytes, kSegmentBytes,
          static_cast<int>(sizeof(Stage::x)) + lane_id() * kSegmentBytes, kSegmentBytes};
}
// A lane per half of the activations; then the scales, then the sums of groups.
constexpr int kActivationCopies = F::kHasMin ? 4 : 3;
ZINC_DEVICE StageCopy activation_copy(const LinearParams& p, const Tile& tile) {
  constexpr int kScales = static_cast<int>(sizeof(Stage::x) + sizeof(Stage::weights));
  const Q8Activation& x = p.q8;
  const long long rows = x.image_rows, first = tile.first_column;
  if (lane_id() < 2) {
    return {x.image + (lane_id() * rows + first) * 128, 2 * rows * 128,
            lane_id() * static_cast<int>(sizeof(Stage::x) / 2), static_cast<int>(sizeof(Stage::x) / 2)};
  }
  if (lane_id() == 2) {
    return {x.image + image_scales_at(x.stride, x.image_rows) + 4 * first, 4 * rows, kScales, static_cast<int>(sizeof(Stage::x_scales))};
  }
  return {x.image + image_sums_at(x.stride, x.image_rows) + kImageSumBytes * first, kImageSumBytes * rows,
          kScales + static_cast<int>(sizeof(Stage::x_scales)), static_cast<int>(sizeof(Stage::sums))};
}

// One warp copies the weights, one the activations; the first does not wait for earlier launches.
template <bool is_of_weights>
ZINC_DEVICE void run_producer(const LinearParams& p, const Work& work, int k_segments, Shared& shared) {
  constexpr int kStageBytes = static_cast<int>(sizeof(Stage::x) + sizeof(Stage::x_scales)) + kPanels * kSegmentBytes +
                              (F::kHasMin ? static_cast<int>(sizeof(Stage::sums)) : 0);
  if (!is_of_weights) wait_dependency();
  StageCopy copy{};
#pragma unroll 1
  for (SegmentCursor at(k_segments, 0); at.tile < work.n_tiles; at.advance(k_segments, 1)) {
    if (at.segment == 0) {
      const Tile tile = work.tile(p, at.tile);
      copy = is_of_weights ? weight_copy(p, tile) : activation_copy(p, tile);
    }
    if (at.index >= kStages) mbarrier_wait(&shared.empty[at.index % kStages], at.index / kStages + 1 & 1);
    if (is_of_weights) {
      if (lane_id() == 0) mbarrier_arrive_expect_tx(&shared.full[at.index % kStages], kStageBytes);
      if (lane_id() < kPanels) copy.run<kEvictFirst>(shared, at);
    } else if (lane_id() < kActivationCopies) {
      copy.run<kEvictNormal>(shared, at);
    }
  }
}

// ---- consumers ----

struct Lane {
  int row_group, split, warp, quad, in_quad;  // warp: in the team
  int row;                                    // in its panel: the first of the lane's two, 8 apart
  ZINC_DEVICE Lane()
      : row_group(warp_id() / 4 % kRowGroups),
        split(warp_id() / 4 / kRowGroups),
        warp(warp_id() % 4),
        quad(lane_id() / 4),
        in_quad(lane_id() % 4),
        row(warp % 2 * 16 + quad) {}
  ZINC_DEVICE int panel() const { return 2 * row_group + warp / 2; }  // of the tile
};

using Values = float[4 * kColumnTiles];

// A lane's A fragment of a group, in both byte planes.
struct GroupPlanes {
  u32 high[4], low[4];
};

// The values of a segment: those of quantized_weights.h.
template <class F>
ZINC_DEVICE void multiply_segment(const Stage& stage, const Lane& lane, Values& values) {
  const u8* panel = stage.weights[lane.panel()];
  const typename F::Header headers[2] = {F::header(panel, lane.row), F::header(panel, lane.row + 8)};
  // Groups whose MMA overlaps with the unpacking of the next: as many as registers allow.
  constexpr bool kIsSimple = !F::kSignedScales && F::kGroupBytes == 16;
  constexpr int kInFlight = (kIsSimple ? 2 : 1) - (kColumns >= 64 ? 1 : 0);
  int high[4 * kColumnTiles], low[4 * kColumnTiles];
  GroupPlanes groups[kSegmentGroups];
#pragma unroll
  for (int g = 0; g < kSegmentGroups; ++g) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int first, second;
      F::raw_fragment(panel, lane.row + 8 * h, g, lane.in_quad, first, second);
      byte_planes<F>(headers[h], g, 0, first, groups[g].high[h], groups[g].low[h]);
      byte_planes<F>(headers[h], g, 1, second, groups[g].high[h + 2], groups[g].low[h + 2]);
    }
    const u64 x = wgmma_descriptor(shared_address(stage.x[g / 4])) + static_cast<u64>(g % 4 * 32 >> 4);
    wgmma_fence();
    wgmma_i8<F::kSignedScales>(high, groups[g].high, x, g > 0);
    wgmma_i8<false>(low, groups[g].low, x, g > 0);
    wgmma_commit();
    if (g >= kInFlight) wgmma_wait<kInFlight>();
  }
  wgmma_wait<0>();
  wgmma_fence_operand(high);
  wgmma_fence_operand(low);
  const float d[2] = {headers[0].d() * kPlaneFactor<F>, headers[1].d() * kPlaneFactor<F>};
  float dmin[2] = {0, 0};
  u32 mins[2] = {0, 0};
  if constexpr (F::kHasMin) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      dmin[h] = headers[h].dmin();
      mins[h] = headers[h].two_mins(lane.in_quad);
    }
  }
#pragma unroll
  for (int c = 0; c < kColumnTiles; ++c) {
    float of_mins[4] = {0, 0, 0, 0};  // the sums of min * xsum: integers, exact in float
    if constexpr (F::kHasMin) {
      const uint4* sums = stage.sums[c * 8 + lane.quad];
      mma_m16n8k16_f16(of_mins, mins[0], mins[1], mins[0], mins[1], reinterpret_cast<const u32*>(sums)[lane.in_quad],
                       reinterpret_cast<const u32*>(sums + 1)[lane.in_quad]);
    }
    const float2 x = *reinterpret_cast<const float2*>(&stage.x_scales[c * 8 + 2 * lane.in_quad]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float value = d[e / 2] * static_cast<float>((high[c * 4 + e] << kPlaneShift<F>) + low[c * 4 + e]);
      if constexpr (F::kHasMin) value = fmaf(-dmin[e / 2], of_mins[e], value);
      values[c * 4 + e] = value * (e % 2 == 0 ? x.x : x.y);
    }
  }
}

// Adds bias and residual to the sums of the lane's rows and tokens, and writes them.
ZINC_DEVICE void write_outputs(const LinearParams& p, const Tile& tile, const Lane& lane, const Values& sums) {
  const int n_out = p.parts[tile.part].n_out, n_tokens = *p.n_rows * p.vectors_per_row;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int o = (tile.first_panel + lane.panel()) * kPanelRows + lane.row + 8 * h;
    if (o >= n_out) continue;
    const float* biases = p.biases[tile.part];
    const float bias = biases ? biases[o] : 0.0f;
#pragma unroll
    for (int i = 0; i < 2 * kColumnTiles; ++i) {
      const int token = tile.first_column + i / 2 * 8 + 2 * lane.in_quad + i % 2;
      if (token >= n_tokens) continue;
      float value = sums[i / 2 * 4 + h * 2 + i % 2];
      if (biases) value += bias;
      const long long offset = static_cast<long long>(token) * n_out + o;
      p.outs[tile.part][offset] = p.residual ? p.residual[offset] + value : value;
    }
  }
}

// Adds a segment to the totals of its tile, after the previous segment; with the last one `values` are the totals.
ZINC_DEVICE void add_segment(Shared& shared, const Lane& lane, const SegmentCursor& at, int k_segments,
                             Values& values) {
  int* n_added = &shared.n_added[lane.row_group][lane.warp];
  float4* totals = &shared.totals[lane.row_group][0][lane.warp * 32 + lane_id()];
  wait_arrivals(n_added, at.index);
#pragma unroll
  for (int c = 0; c < kColumnTiles; ++c) {
    float* v = values + 4 * c;
    if (at.segment > 0) {
      const float4 before = totals[c * 128];
      v[0] += before.x;
      v[1] += before.y;
      v[2] += before.z;
      v[3] += before.w;
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) v[e] += 0.0f;  // as all kernels do: a negative zero becomes zero
    }
    if (at.segment + 1 < k_segments) totals[c * 128] = make_float4(v[0], v[1], v[2], v[3]);
  }
  __syncwarp();
  if (lane_id() == 0) set_arrivals(n_added, at.index + 1);
}

ZINC_DEVICE void run_consumer(const LinearParams& p, const Work& work, int k_segments, Shared& shared) {
  const Lane lane;
  Values totals = {};
#pragma unroll 1
  for (SegmentCursor at(k_segments, lane.split); at.tile < work.n_tiles; at.advance(k_segments, kSplits)) {
    const int stage = at.index % kStages;
    mbarrier_wait(&shared.full[stage], at.index / kStages & 1);
    Values values;
    multiply_segment<F>(shared.stages[stage], lane, values);
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive(&shared.empty[stage]);
    const bool is_last = at.segment + 1 == k_segments;
    if constexpr (kSplits > 1) {
      add_segment(shared, lane, at, k_segments, values);
      if (is_last) write_outputs(p, work.tile(p, at.tile), lane, values);
    } else {
#pragma unroll
      for (int i = 0; i < 4 * kColumnTiles; ++i) totals[i] += values[i];
      if (!is_last) continue;
      write_outputs(p, work.tile(p, at.tile), lane, totals);
#pragma unroll
      for (int i = 0; i < 4 * kColumnTiles; ++i) totals[i] = 0;
    }
  }
}

// Grid: at most one block per SM; two never fit, so blocks without work are not needed to keep their placement.
extern "C" __global__ void __launch_bounds__(gemm_small_wgmma_threads(kShape), 1)
    gemm_small_wgmma(__grid_constant__ const LinearParams p) {
  extern __shared__ __align__(1024) u8 smem_bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(smem_bytes);
  launch_dependents();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kStages) {
    mbarrier_init(&shared.full[thread]);
    mbarrier_init(&shared.empty[thread], 4 * kRowGroups);
  }
  if (thread < 4 * kRowGroups) shared.n_added[thread / 4][thread % 4] = 0;
  fence_mbarrier_init();
  __syncthreads();
  const Work work(p);
  const int k_segments = p.parts[0].n_segments;
  if (warp_id() == 4 * kTeams) {
    run_producer<true>(p, work, k_segments, shared);
  } else if (warp_id() > 4 * kTeams) {
    run_producer<false>(p, work, k_segments, shared);
  } else {
    wait_dependency();
    run_consumer(p, work, k_segments, shared);
  }
}

#else
extern "C" __global__ void gemm_small_wgmma(__grid_constant__ const LinearParams) {}  // launched on sm_90a only
#endif

}  // namespace zinc::simt
