// out[t, o] = sum_k x[t, k] * weight[o, k] with int8 MMA, for few columns (steps of 2 to 128 tokens, experts in steps
// of up to 512), whose cost is reading the weights. A program of this file begins with one format/<f>.h; activations
// are quantized by an earlier launch, in mma order. Persistent: a block has consecutive panels and reads their weights
// once, by bulk copies (cp.async on GPUs without them), the first ones before it waits for its activations.
// A work tile is one K segment of a panel (32 interleaved rows) by kShape.n_columns columns (activation rows; in MoE,
// token-expert pairs of one expert). A team of warps has its own stages of shared memory, multiplies its tiles one
// after the other, with the activations in registers, and adds each to the panel's sums when the previous segment has
// been added: segments are added in order, whichever teams multiply them, so results are bit-identical to linear.cu.
// Each warp of a team multiplies all rows by some of the columns.
#include "backend/simt/mma_segment.h"

namespace zinc::simt {

using F = WeightFormat;
constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);
constexpr int kTeamWarps = kShape.n_team_warps, kTeams = team_count(kShape), kStages = kShape.n_stages;
constexpr int kColumns = kShape.n_columns, kSlots = kShape.n_accumulators;
constexpr bool kHasExperts = kShape.has_experts != 0, kHasBulkCopies = kShape.has_bulk_copies != 0;
constexpr int kRowTiles = kPanelRows / 16, kColumnTiles = kColumns / (8 * kTeamWarps);  // mma tiles of a warp
constexpr GemmSmallSmem kSmem = gemm_small_smem(kShape, kSegmentBytes);
static_assert(kShape.n_warps % kTeamWarps == 0 && kColumns % (8 * kTeamWarps) == 0);
static_assert(kTeamWarps == 1 || kTeams < 16, "a named barrier per team");

struct Lane {
  int team, warp;   // warp: in the team
  int row, column;  // the lane's first row in the panel, of two per row tile; the warp's first column
  ZINC_DEVICE Lane()
      : team(warp_id() / kTeamWarps),
        warp(warp_id() % kTeamWarps),
        row(lane_id() / 4),
        column(warp * (8 * kColumnTiles)) {}
  ZINC_DEVICE bool is_leader() const { return warp == 0 && lane_id() == 0; }  // issues the team's bulk copies
  ZINC_DEVICE void sync_team() const {
    if constexpr (kTeamWarps > 1) {
      named_barrier_sync<32 * kTeamWarps>(1 + team);
    } else {
      __syncwarp();
    }
  }
};

// ---- work ----

// The block's panels, numbered over all parts and, with experts, over all expert tiles.
struct Work {
  int begin, end, tile_panels;  // tile_panels: of all parts

  ZINC_DEVICE Work(const LinearParams& p, int n_expert_tiles) : tile_panels(0) {
    for (int part = 0; part < p.n_parts; ++part) tile_panels += panels_of(p.parts[part]);
    const long long n = static_cast<long long>(tile_panels) * n_expert_tiles;
    begin = static_cast<int>(n * blockIdx.x / gridDim.x);
    end = static_cast<int>(n * (blockIdx.x + 1) / gridDim.x);
  }
  static ZINC_DEVICE int panels_of(const Matrix& matrix) { return (matrix.n_out + kPanelRows - 1) / kPanelRows; }
};

// A panel's expert tile, part and index in it.
struct Panel {
  int expert_tile, part, index;
  ZINC_DEVICE Panel(const LinearParams& p, const Work& work, int number)
      : expert_tile(kHasExperts ? number / work.tile_panels : 0),
        part(0),
        index(number - expert_tile * work.tile_panels) {
    for (; part + 1 < p.n_parts && index >= Work::panels_of(p.parts[part]); ++part) {
      index -= Work::panels_of(p.parts[part]);
    }
  }
  ZINC_DEVICE int expert(const LinearParams& p) const { return kHasExperts ? p.tiles.tiles[3 * expert_tile] : 0; }
};

// The columns of a tile: activation rows that follow each other, or the pairs of an expert tile.
struct Columns {
  int first, count;  // count: 0 or less if there are none

  ZINC_DEVICE Columns(const LinearParams& p, int expert_tile) {
    if (kHasExperts) {
      first = p.tiles.tiles[3 * expert_tile + 1];
      count = p.tiles.tiles[3 * expert_tile + 2];
    } else {
      first = static_cast<int>(blockIdx.y) * kColumns;
      count = min(kColumns, *p.n_rows * p.vectors_per_row - first);
    }
  }
  ZINC_DEVICE int out_row(const LinearParams& p, int column) const {
    return kHasExperts ? p.tiles.order[first + column] : first + column;
  }
  // Columns past the last repeat it.
  ZINC_DEVICE int x_row(const LinearParams& p, int column) const {
    const int row = out_row(p, min(column, count - 1));
    return kHasExperts && !p.x_per_expert ? row / p.n_experts_used : row;
  }
};

// Iterates over a team's tiles. A block works on up to kSlots panels of the same columns at a time (a pass), and on as
// many of their segments as it has teams (a chunk): while a chunk is full, each team keeps its segment of the
// activations for all panels of the pass. The tiles of the last chunk are distributed evenly.
struct TileCursor {
  int first_panel, first_segment;  // of the pass and of the chunk
  int panel, segment;              // in them

  TileCursor() = default;
  ZINC_DEVICE TileCursor(const Work& work, int k_segments, int team)
      : first_panel(work.begin), first_segment(0), panel(0), segment(team) {
    skip_empty(work, k_segments, team);
  }
  ZINC_DEVICE void advance(const Work& work, int k_segments, int team) {
    segment += kTeams;
    skip_empty(work, k_segments, team);
  }
  ZINC_DEVICE bool is_done(const Work& work) const { return first_panel >= work.end; }
  ZINC_DEVICE int panel_number() const { return first_panel + panel; }
  ZINC_DEVICE int k_segment() const { return first_segment + segment; }

 private:
  ZINC_DEVICE int pass_panels(const Work& work) const {
    const int n = min(kSlots, work.end - first_panel);
    return kHasExperts ? min(n, work.tile_panels - first_panel % work.tile_panels) : n;
  }
  ZINC_DEVICE void skip_empty(const Work& work, int k_segments, int team) {
    while (first_panel < work.end) {
      const int n_panels = pass_panels(work), n_segments = min(kTeams, k_segments - first_segment);
      for (; segment >= n_segments; segment -= n_segments) ++panel;
      if (panel < n_panels) return;
      first_segment += n_segments;
      if (first_segment >= k_segments) {
        first_segment = 0;
        first_panel += n_panels;
      }
      segment = team;
      panel = 0;
    }
  }
};

// ---- activations ----

// The warp's columns of a K segment. load() only starts the loads.
struct ColumnFragments : MmaColumns<F, kColumnTiles> {
  ZINC_DEVICE void load(const LinearParams& p, const Columns& columns, const Lane& lane, int s) {
    const Q8Activation& x = p.q8;
    const int i = lane_id() % 4, n_segments = x.stride / kSegmentElems;
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      const long long segment =
          static_cast<long long>(columns.x_row(p, lane.column + c * 8 + lane_id() / 4)) * n_segments + s;
      const u32* from = reinterpret_cast<const u32*>(x.q + segment * kSegmentElems);
#pragma unroll
      for (int k = 0; k < kSegmentGroups / 2; ++k) {
        words[c][k] = x.is_in_mma_order ? reinterpret_cast<const uint4*>(from)[4 * k + i]
                                        : make_uint4(from[16 * k + i], from[16 * k + 4 + i], from[16 * k + 8 + i],
                                                     from[16 * k + 12 + i]);
      }
      if constexpr (kHasGroupScales) {
        xscales[c] = reinterpret_cast<const float2*>(x.scale + segment * kSegmentGroups)[i];
      } else {
        xscales[c].x = x.scale[segment];
      }
      if constexpr (F::kHasMin) xsums[c] = reinterpret_cast<const int2*>(x.sum + segment * kSegmentGroups)[i];
    }
  }
};

// ---- weights ----

// A team's stages. Its leader copies the tiles; without bulk copies all its warps do, in a commit group per stage. The
// next tile to copy is in shared memory, to save registers: one per warp, since each advances its own.
struct WeightPipeline {
  u8* stages;
  Mbarrier* full;
  TileCursor& next;
  int stage = 0, round = 0;

  ZINC_DEVICE WeightPipeline(u8* shared, TileCursor* next, const Lane& lane)
      : stages(shared + kSmem.stages + lane.team * kStages * kSegmentBytes),
        full(reinterpret_cast<Mbarrier*>(shared + kSmem.full) + lane.team * kStages),
        next(next[warp_id()]) {}
  // Returns the number of bulk copies that the thread has started.
  ZINC_DEVICE int start(const LinearParams& p, const Work& work, const Lane& lane, const TileCursor& first) {
    if (kHasBulkCopies && !lane.is_leader()) return 0;
    if (kHasBulkCopies || lane_id() == 0) next = first;
    if constexpr (!kHasBulkCopies) __syncwarp();
    int n = 0;
    for (; n < kStages && !next.is_done(work); ++n) {
      load(p, work, lane, n);
      if constexpr (!kHasBulkCopies) cp_async_commit();
    }
    if constexpr (kHasBulkCopies) return n;
    for (; n < kStages; ++n) cp_async_commit();
    return 0;
  }
  ZINC_DEVICE const u8* wait(const Lane& lane) const {
    if constexpr (kHasBulkCopies) {
      mbarrier_wait(full + stage, round & 1);
    } else {
      cp_async_wait<kStages - 1>();
      lane.sync_team();
    }
    return stages + stage * kSegmentBytes;
  }
  // The stage is not read any more.
  ZINC_DEVICE void release(const LinearParams& p, const Work& work, const Lane& lane) {
    lane.sync_team();
    if ((!kHasBulkCopies || lane.is_leader()) && !next.is_done(work)) load(p, work, lane, stage);
    if constexpr (!kHasBulkCopies) cp_async_commit();  // also without a copy: wait() counts the groups
    if (++stage == kStages) {
      stage = 0;
      ++round;
    }
  }

 private:
  ZINC_DEVICE void load(const LinearParams& p, const Work& work, const Lane& lane, int to) {
    const Panel panel(p, work, next.panel_number());
    const Matrix& matrix = p.parts[panel.part];
    const int s = next.k_segment(), n_groups = s + 1 < matrix.n_segments ? kSegmentGroups : matrix.n_last_groups;
    const u8* from = matrix.bytes + panel.expert(p) * matrix.matrix_bytes + panel.index * matrix.panel_bytes +
                     static_cast<long long>(s) * kSegmentBytes;
    const int n_bytes = kPanelRows * (F::kHeaderBytes + n_groups * F::kGroupBytes);
    if constexpr (kHasBulkCopies) {
      bulk_copy_expect_tx<kEvictFirst>(stages + to * kSegmentBytes, from, n_bytes, full + to);
      next.advance(work, matrix.n_segments, lane.team);
    } else {
      cp_async_weights<32 * kTeamWarps, kSegmentBytes>(stages + to * kSegmentBytes, from, n_bytes,
                                                       32 * lane.warp + lane_id());
      __syncwarp();  // all lanes have read the cursor
      if (lane_id() == 0) next.advance(work, matrix.n_segments, lane.team);
      __syncwarp();
    }
  }
};

// ---- sums ----

using TileValues = float[kRowTiles][kColumnTiles][4];

// Adds scale, bias and residual to the sums of a panel's rows and columns, and writes them.
ZINC_DEVICE void write_outputs(const LinearParams& p, const Panel& panel, const Columns& columns, const Lane& lane,
                               const TileValues& sums) {
  const int n_out = p.parts[panel.part].n_out, expert = panel.expert(p);
  const float* scales = p.expert_scales[panel.part];
  const float* biases = p.biases[panel.part];
  const float scale = scales ? scales[expert] : 1.0f;
#pragma unroll
  for (int h = 0; h < 2 * kRowTiles; ++h) {
    const int o = panel.index * kPanelRows + lane.row + 8 * h;
    if (o >= n_out) continue;
    const float bias = biases ? biases[static_cast<long long>(expert) * n_out + o] : 0.0f;
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int column = lane.column + c * 8 + lane_id() % 4 * 2 + k;
        if (column >= columns.count) continue;
        float value = sums[h / 2][c][h % 2 * 2 + k];
        if (scales) value *= scale;
        if (biases) value += bias;
        const long long offset = static_cast<long long>(columns.out_row(p, column)) * n_out + o;
        p.outs[panel.part][offset] = p.residual ? p.residual[offset] + value : value;
      }
    }
  }
}

// Adds a tile to its panel's sums, after the previous segment; after the last one the outputs are written.
ZINC_DEVICE void add_tile(const LinearParams& p, const Work& work, const Lane& lane, int panel_number, int s,
                          TileValues& values, u8* shared) {
  constexpr int kWarpSums = kRowTiles * kColumnTiles * 32;  // float4
  const int k_segments = p.parts[0].n_segments, n = panel_number - work.begin, slot = n % kSlots;
  const int n_before = n / kSlots * k_segments + s;  // tiles that are added to the slot's sums before
  int* n_added = reinterpret_cast<int*>(shared + kSmem.n_added) + slot * kTeamWarps + lane.warp;
  float4* sums =
      reinterpret_cast<float4*>(shared + kSmem.sums) + (slot * kTeamWarps + lane.warp) * kWarpSums + lane_id();
  wait_arrivals(n_added, n_before);  // an mbarrier's parity would not tell more than two segments apart
#pragma unroll
  for (int i = 0; i < kRowTiles * kColumnTiles; ++i) {
    float(&v)[4] = values[i / kColumnTiles][i % kColumnTiles];
    const float4 before = s == 0 ? make_float4(0, 0, 0, 0) : sums[i * 32];
    v[0] += before.x;
    v[1] += before.y;
    v[2] += before.z;
    v[3] += before.w;
    if (s + 1 < k_segments) sums[i * 32] = make_float4(v[0], v[1], v[2], v[3]);
  }
  __syncwarp();
  if (lane_id() == 0) set_arrivals(n_added, n_before + 1);
  if (s + 1 < k_segments) return;
  const Panel panel(p, work, panel_number);
  write_outputs(p, panel, Columns(p, panel.expert_tile), lane, values);
}

ZINC_DEVICE void init_barriers(u8* shared) {
  static_assert(kTeams * kStages <= 32 * kShape.n_warps && kSlots * kTeamWarps <= 32 * kShape.n_warps);
  const int thread = static_cast<int>(threadIdx.x);
  if (kHasBulkCopies && thread < kTeams * kStages)
    mbarrier_init(reinterpret_cast<Mbarrier*>(shared + kSmem.full) + thread);
  if (thread < kSlots * kTeamWarps) reinterpret_cast<int*>(shared + kSmem.n_added)[thread] = 0;
  fence_mbarrier_init();
  __syncthreads();
}

// Grid: as many blocks as SMs, also if some have no work (ADR 0015); tiles of columns. With experts, their tiles are
// part of the work.
extern "C" __global__ void __launch_bounds__(32 * kShape.n_warps, 1)
    gemm_small(__grid_constant__ const LinearParams p) {
  extern __shared__ float4 smem[];
  __shared__ TileCursor next_copies[kShape.n_warps];
  u8* shared = reinterpret_cast<u8*>(smem);
  launch_dependents();
  init_barriers(shared);
  if (kHasExperts) wait_dependency();  // it selects the weights
  const Lane lane;
  const Work work(p, kHasExperts ? *p.tiles.n_tiles : 1);
  const int k_segments = p.parts[0].n_segments;
  TileCursor tile(work, k_segments, lane.team);
  WeightPipeline pipeline(shared, next_copies, lane);
  const int n_copies = pipeline.start(p, work, lane, tile);
  if (!kHasExperts) wait_dependency();
  if (tile.is_done(work)) return;
  const auto columns_of = [&](const TileCursor& of) { return Columns(p, Panel(p, work, of.first_panel).expert_tile); };
  if (columns_of(tile).count <= 0) {
    for (int i = 0; i < n_copies; ++i) mbarrier_wait(pipeline.full + i, 0);
    if constexpr (!kHasBulkCopies) cp_async_wait<0>();
    return;
  }
  ColumnFragments x;
  x.load(p, columns_of(tile), lane, tile.k_segment());
#pragma unroll 1
  while (!tile.is_done(work)) {
    const int panel_number = tile.panel_number(), first_panel = tile.first_panel, s = tile.k_segment();
    const bool is_whole = F::kQ8Block == kSegmentElems || s + 1 < k_segments;
    const int n_groups = is_whole ? kSegmentGroups : p.parts[0].n_last_groups;
    TileValues values;
    const u8* segment = pipeline.wait(lane);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) mma_segment<F>(segment, lane.row + 16 * r, x, n_groups, values[r]);
    pipeline.release(p, work, lane);
    tile.advance(work, k_segments, lane.team);
    const bool loads_x = !tile.is_done(work) && (tile.k_segment() != s || tile.first_panel != first_panel);
    if (loads_x) x.load(p, columns_of(tile), lane, tile.k_segment());
    add_tile(p, work, lane, panel_number, s, values, shared);
  }
}

}  // namespace zinc::simt
