// out[t, o] = sum_k x[t, k] * weight[o, k] for floating-point weights, without tensor cores. A program of this file begins
// with one format/<f>.h.
// A block has one or two panels of weights (a lane per row) by up to 64 columns (activation rows), which its warps share.
// The blocks of a cluster split the K segments and send each segment's sums to the block that owns the column. Sequential
// FMA over a segment, segments in order, so results are bit-identical to linear.cu and gemv.cu.
#include "backend/simt/device_common.h"

namespace zinc::simt {

using F = WeightFormat;
constexpr int kSegmentBytes = kPanelRows * kSegmentGroups * F::kGroupBytes;
constexpr int kPieces = kGroupElems / F::kPieceElems;  // of a row's group
constexpr int kStageWeightBytes = kSegmentBytes / kFloatSegmentStages;

// Half a segment: the panels' weights as in memory, then the columns' inputs.
template <int n_panels, int n_columns>
struct FloatStage {
  uint4 weights[n_panels][kStageWeightBytes / 16];
  float x[n_columns][kFloatStageElems];
};

// The block's panels and columns, and its segments: every n_splits-th one.
struct FloatTile {
  int part, panel, n_panels, rank, first_column, n_columns, n_stages;  // panel: the first

  ZINC_DEVICE FloatTile(const LinearParams& p, int max_panels, int max_columns, int n_rows)
      : part(0),
        panel(static_cast<int>(blockIdx.x) / p.n_splits),
        rank(static_cast<int>(blockIdx.x) % p.n_splits),
        first_column(static_cast<int>(blockIdx.y) * max_columns),
        n_columns(min(max_columns, n_rows - first_column)) {
    const auto panels_of = [&](int i) { return (p.parts[i].n_out + kPanelRows - 1) / kPanelRows; };
    for (; part + 1 < p.n_parts; ++part) {
      const int n_blocks = (panels_of(part) + max_panels - 1) / max_panels;
      if (panel < n_blocks) break;
      panel -= n_blocks;
    }
    panel *= max_panels;
    n_panels = min(max_panels, panels_of(part) - panel);
    n_stages = (p.parts[part].n_segments - rank + p.n_splits - 1) / p.n_splits * kFloatSegmentStages;
  }
  ZINC_DEVICE int segment(const LinearParams& p, int stage) const {
    return rank + stage / kFloatSegmentStages * p.n_splits;
  }
  // Quant groups of a stage; 0 or less: none.
  static ZINC_DEVICE int n_groups(const Matrix& matrix, int segment, int stage) {
    const int n = segment + 1 < matrix.n_segments ? kSegmentGroups : matrix.n_last_groups;
    return min(kFloatStageGroups, n - stage % kFloatSegmentStages * kFloatStageGroups);
  }
};

template <int n_warps>
ZINC_DEVICE void load_weights(const LinearParams& p, const FloatTile& tile, int stage,
                              uint4 (*to)[kStageWeightBytes / 16]) {
  const Matrix& matrix = p.parts[tile.part];
  const int segment = tile.segment(p, stage), n_groups = FloatTile::n_groups(matrix, segment, stage);
  const u8* from = matrix.bytes + tile.panel * matrix.panel_bytes + static_cast<long long>(segment) * kSegmentBytes +
                   stage % kFloatSegmentStages * kStageWeightBytes;
  for (int panel = 0; panel < tile.n_panels; ++panel, from += matrix.panel_bytes) {
    for (int i = static_cast<int>(threadIdx.x); i < n_groups * (kPanelRows * F::kGroupBytes / 16); i += 32 * n_warps) {
      cp_async_16(to[panel] + i, from + 16 * i);
    }
  }
}

// Inputs past the end of a row are zero.
template <int n_warps>
ZINC_DEVICE void load_inputs(const LinearParams& p, const FloatTile& tile, int stage, float (*to)[kFloatStageElems]) {
  const Matrix& matrix = p.parts[tile.part];
  const int k = tile.segment(p, stage) * kSegmentElems + stage % kFloatSegmentStages * kFloatStageElems + 4 * lane_id();
  for (int column = warp_id(); column < tile.n_columns; column += n_warps) {
    const float* from = p.x + static_cast<long long>(tile.first_column + column) * matrix.n_in + k;
    float* own = to[column] + 4 * lane_id();
    if (matrix.n_in % 4 == 0) {
      cp_async_16_zfill(own, k < matrix.n_in ? from : p.x, k < matrix.n_in);
    } else {
      for (int e = 0; e < 4; ++e) own[e] = k + e < matrix.n_in ? from[e] : 0.0f;
    }
  }
}

// Adds a stage to the sums of the warp's columns, of the first n_panels panels.
template <int n_panels, int max_panels, int n>
ZINC_DEVICE void multiply_stage(const uint4 (*weights)[kStageWeightBytes / 16], const float (*x)[kFloatStageElems],
                                int n_groups, float (&sums)[max_panels][n]) {
#pragma unroll 1
  for (int g = 0; g < n_groups; ++g) {
#pragma unroll(n_panels * n <= 8 ? kPieces : 2)
    for (int j = 0; j < kPieces; ++j) {
      uint4 loaded[n_panels];
#pragma unroll
      for (int panel = 0; panel < n_panels; ++panel) {
        loaded[panel] = weights[panel][(g * kPieces + j) * kPanelRows + lane_id()];
      }
#pragma unroll
      for (int k = 0; k < F::kPieceElems; k += 4) {
        float w[n_panels][4];
#pragma unroll
        for (int i = 0; i < 4 * n_panels; ++i) w[i / 4][i % 4] = F::element(loaded[i / 4], k + i % 4);
#pragma unroll
        for (int c = 0; c < n; ++c) {
          const float4 inputs = *reinterpret_cast<const float4*>(x[c] + g * kGroupElems + j * F::kPieceElems + k);
#pragma unroll
          for (int panel = 0; panel < n_panels; ++panel) {
            float& sum = sums[panel][c];
            sum = fmaf(w[panel][0], inputs.x, sum);
            sum = fmaf(w[panel][1], inputs.y, sum);
            sum = fmaf(w[panel][2], inputs.z, sum);
            sum = fmaf(w[panel][3], inputs.w, sum);
          }
        }
      }
    }
  }
}

// row: of the block.
ZINC_DEVICE void write_float_output(const LinearParams& p, const FloatTile& tile, int column, int row, float value) {
  const int n_out = p.parts[tile.part].n_out, o = tile.panel * kPanelRows + row;
  if (o >= n_out) return;
  const float* bias = p.biases[tile.part];
  if (bias) value += bias[o];
  const long long out_offset = static_cast<long long>(tile.first_column + column) * n_out + o;
  p.outs[tile.part][out_offset] = p.residual ? p.residual[out_offset] + value : value;
}

// ---- split K: rank r of the cluster owns columns r, r + n_splits, ... ----

// Sums of all segments of the block's own columns, in shared memory: [segment][own column][row].
template <int max_rows, int max_columns>
struct OwnColumns {
  Mbarrier* done;
  float* partial;
  int n_splits, rank;

  ZINC_DEVICE int stride() const { return (max_columns + n_splits - 1) / n_splits * max_rows; }
  ZINC_DEVICE int count(const FloatTile& tile) const { return (tile.n_columns - rank + n_splits - 1) / n_splits; }
  // The blocks may send only after a cluster_wait().
  ZINC_DEVICE void init(const FloatTile& tile, int n_segments) const {
    if (threadIdx.x == 0) {
      mbarrier_init(done);
      const int n_floats = count(tile) * tile.n_panels * kPanelRows * n_segments;
      mbarrier_arrive_expect_tx(done, n_floats * static_cast<int>(sizeof(float)));
      fence_mbarrier_init();
    }
    __syncthreads();
    cluster_arrive();
  }
  ZINC_DEVICE void send(int segment, int column, int row, float value) const {
    float* to = partial + segment * stride() + column / n_splits * max_rows + row;
    store_async_remote(to, done, column % n_splits, value);
  }
  ZINC_DEVICE void write(const LinearParams& p, const FloatTile& tile) const {
    mbarrier_wait_cluster(done);
    const int n = count(tile) * max_rows, n_segments = p.parts[tile.part].n_segments;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
      if (i % max_rows >= tile.n_panels * kPanelRows) continue;
      float sum = 0;
#pragma unroll 8
      for (int s = 0; s < n_segments; ++s) sum += partial[s * stride() + i];
      write_float_output(p, tile, rank + i / max_rows * n_splits, i % max_rows, sum);
    }
  }
};

// Grid: blocks of panels of all parts times n_splits, tiles of columns. n: columns of a warp.
template <int n_warps, int n, int n_panels>
ZINC_DEVICE void gemm_floats(const LinearParams& p) {
  constexpr int kColumns = n_warps * n, kStages = kFloatSegmentStages;
  extern __shared__ float4 shared[];
  launch_dependents();
  const FloatTile tile(p, n_panels, kColumns, step_count(p.n_rows) * p.vectors_per_row);
  if (tile.n_columns <= 0) return wait_dependency();
  auto* stages = reinterpret_cast<FloatStage<n_panels, kColumns>*>(shared);
  auto* done = reinterpret_cast<Mbarrier*>(stages + kStages);
  const OwnColumns<n_panels * kPanelRows, kColumns> own{done, reinterpret_cast<float*>(done + 2), p.n_splits, tile.rank};
  const Matrix& matrix = p.parts[tile.part];
  for (int t = 0; t < kStages; ++t) load_weights<n_warps>(p, tile, t, stages[t].weights);
  const bool is_split = p.n_splits > 1;
  if (is_split) own.init(tile, matrix.n_segments);
  wait_dependency();
  for (int t = 0; t < kStages; ++t) {
    load_inputs<n_warps>(p, tile, t, stages[t].x);
    cp_async_commit();
  }
  const int column = warp_id() * n, n_warp_columns = min(n, tile.n_columns - column);
  float total[n_panels][n] = {}, sums[n_panels][n] = {};
  for (int t = 0; t < tile.n_stages; ++t) {
    FloatStage<n_panels, kColumns>& stage = stages[t % kStages];
    cp_async_wait<kStages - 1>();
    __syncthreads();
    const int segment = tile.segment(p, t), n_groups = FloatTile::n_groups(matrix, segment, t);
    if (n_warp_columns > 0 && tile.n_panels == n_panels) {
      multiply_stage<n_panels>(stage.weights, stage.x + column, n_groups, sums);
    } else if (n_warp_columns > 0) {
      multiply_stage<1>(stage.weights, stage.x + column, n_groups, sums);
    }
    __syncthreads();
    if (t + kStages < tile.n_stages) {
      load_weights<n_warps>(p, tile, t + kStages, stage.weights);
      load_inputs<n_warps>(p, tile, t + kStages, stage.x);
    }
    cp_async_commit();
    if (t % kFloatSegmentStages + 1 < kFloatSegmentStages) continue;
    if (is_split && t < kFloatSegmentStages) cluster_wait();
#pragma unroll
    for (int i = 0; i < n_panels * n; ++i) {
      const int panel = i / n, c = i % n;
      if (is_split && c < n_warp_columns && panel < tile.n_panels) {
        own.send(segment, column + c, panel * kPanelRows + lane_id(), sums[panel][c]);
      }
      total[panel][c] += sums[panel][c];
      sums[panel][c] = 0;
    }
  }
  if (is_split) return own.write(p, tile);
#pragma unroll
  for (int i = 0; i < n_panels * n; ++i) {
    const int panel = i / n, c = i % n;
    if (c < n_warp_columns) write_float_output(p, tile, column + c, panel * kPanelRows + lane_id(), total[panel][c]);
  }
}

// By columns and panels.
extern "C" __global__ void __launch_bounds__(64, 5) gemm_floats_8x1(__grid_constant__ const LinearParams p) {
  gemm_floats<2, 4, 1>(p);
}
extern "C" __global__ void __launch_bounds__(128, 2) gemm_floats_16x1(__grid_constant__ const LinearParams p) {
  gemm_floats<4, 4, 1>(p);
}
extern "C" __global__ void __launch_bounds__(128, 2) gemm_floats_32x1(__grid_constant__ const LinearParams p) {
  gemm_floats<4, 8, 1>(p);
}
extern "C" __global__ void __launch_bounds__(128, 2) gemm_floats_32x2(__grid_constant__ const LinearParams p) {
  gemm_floats<4, 8, 2>(p);
}
extern "C" __global__ void __launch_bounds__(128, 2) gemm_floats_64x2(__grid_constant__ const LinearParams p) {
  gemm_floats<4, 16, 2>(p);
}

}  // namespace zinc::simt
