// out[t, o] = sum_k x[t, k] * weight[o, k] for floating-point weights, without tensor cores. A program of this file begins
// with one format/<f>.h.
// A block has one panel of weights (a lane per row) by up to 64 columns (activation rows), which its warps share. The
// blocks of a cluster split the K segments and send each segment's sums to the block that owns the column. Sequential FMA
// over a segment, segments in order, so results are bit-identical to linear.cu and gemv.cu.
#include "backend/simt/device_common.h"

namespace zinc::simt {

using F = WeightFormat;
constexpr int kSegmentBytes = kPanelRows * kSegmentGroups * F::kGroupBytes;
constexpr int kPieces = kGroupElems / F::kPieceElems;  // of a row's group
constexpr int kStageWeightBytes = kSegmentBytes / kFloatSegmentStages;

// Half a segment: weights as in memory, then the columns' inputs.
template <int n_columns>
struct FloatStage {
  uint4 weights[kStageWeightBytes / 16];
  float x[n_columns][kFloatStageElems];
};

// The block's panel and columns, and its segments: every n_splits-th one.
struct FloatTile {
  int part, panel, rank, first_column, n_columns, n_stages;

  ZINC_DEVICE explicit FloatTile(const LinearParams& p)
      : part(0),
        panel(static_cast<int>(blockIdx.x) / p.n_splits),
        rank(static_cast<int>(blockIdx.x) % p.n_splits),
        first_column(0),
        n_columns(0) {
    for (; part + 1 < p.n_parts; ++part) {
      const int n_panels = (p.parts[part].n_out + kPanelRows - 1) / kPanelRows;
      if (panel < n_panels) break;
      panel -= n_panels;
    }
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
ZINC_DEVICE void load_weights(const LinearParams& p, const FloatTile& tile, int stage, uint4* to) {
  const Matrix& matrix = p.parts[tile.part];
  const int segment = tile.segment(p, stage), n_groups = FloatTile::n_groups(matrix, segment, stage);
  const u8* from = matrix.bytes + tile.panel * matrix.panel_bytes + static_cast<long long>(segment) * kSegmentBytes +
                   stage % kFloatSegmentStages * kStageWeightBytes;
  for (int i = static_cast<int>(threadIdx.x); i < n_groups * (kPanelRows * F::kGroupBytes / 16); i += 32 * n_warps) {
    cp_async_16(to + i, from + 16 * i);
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

// Adds a stage to the sums of the warp's columns.
template <int n>
ZINC_DEVICE void multiply_stage(const uint4* weights, const float (*x)[kFloatStageElems], int n_groups,
                                float (&sums)[n]) {
#pragma unroll 1
  for (int g = 0; g < n_groups; ++g) {
#pragma unroll(n <= 8 ? kPieces : 2)
    for (int j = 0; j < kPieces; ++j) {
      const uint4 loaded = weights[(g * kPieces + j) * kPanelRows + lane_id()];
#pragma unroll
      for (int k = 0; k < F::kPieceElems; k += 4) {
        float w[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) w[e] = F::element(loaded, k + e);
#pragma unroll
        for (int c = 0; c < n; ++c) {
          const float4 inputs = *reinterpret_cast<const float4*>(x[c] + g * kGroupElems + j * F::kPieceElems + k);
          sums[c] = fmaf(w[0], inputs.x, sums[c]);
          sums[c] = fmaf(w[1], inputs.y, sums[c]);
          sums[c] = fmaf(w[2], inputs.z, sums[c]);
          sums[c] = fmaf(w[3], inputs.w, sums[c]);
        }
      }
    }
  }
}

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
template <int n_columns>
struct OwnColumns {
  Mbarrier* done;
  float* partial;
  int n_splits, rank;

  ZINC_DEVICE int stride() const { return (n_columns + n_splits - 1) / n_splits * kPanelRows; }
  ZINC_DEVICE int count(const FloatTile& tile) const { return (tile.n_columns - rank + n_splits - 1) / n_splits; }
  // The blocks may send only after a cluster_wait().
  ZINC_DEVICE void init(const FloatTile& tile, int n_segments) const {
    if (threadIdx.x == 0) {
      mbarrier_init(done);
      const int n_floats = count(tile) * kPanelRows * n_segments;
      mbarrier_arrive_expect_tx(done, n_floats * static_cast<int>(sizeof(float)));
      fence_mbarrier_init();
    }
    __syncthreads();
    cluster_arrive();
  }
  ZINC_DEVICE void send(int segment, int column, float value) const {
    float* to = partial + segment * stride() + column / n_splits * kPanelRows + lane_id();
    store_async_remote(to, done, column % n_splits, value);
  }
  ZINC_DEVICE void write(const LinearParams& p, const FloatTile& tile) const {
    mbarrier_wait_cluster(done);
    const int n = count(tile) * kPanelRows, n_segments = p.parts[tile.part].n_segments;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
      float sum = 0;
#pragma unroll 4
      for (int s = 0; s < n_segments; ++s) sum += partial[s * stride() + i];
      write_float_output(p, tile, rank + i / kPanelRows * n_splits, i % kPanelRows, sum);
    }
  }
};

// Grid: panels of all parts times n_splits, tiles of columns.
template <int n_warps, int n>
ZINC_DEVICE void gemm_floats(const LinearParams& p) {
  constexpr int kColumns = n_warps * n, kStages = kFloatSegmentStages;
  extern __shared__ float4 shared[];
  launch_dependents();
  FloatTile tile(p);
  auto* stages = reinterpret_cast<FloatStage<kColumns>*>(shared);
  auto* done = reinterpret_cast<Mbarrier*>(stages + kStages);
  const OwnColumns<kColumns> own{done, reinterpret_cast<float*>(done + 2), p.n_splits, tile.rank};
  const Matrix& matrix = p.parts[tile.part];
  tile.first_column = static_cast<int>(blockIdx.y) * kColumns;
  tile.n_columns = min(kColumns, step_count(p.n_rows) * p.vectors_per_row - tile.first_column);
  if (tile.n_columns <= 0) return wait_dependency();
  for (int t = 0; t < kStages; ++t) load_weights<n_warps>(p, tile, t, stages[t].weights);
  const bool is_split = p.n_splits > 1;
  if (is_split) own.init(tile, matrix.n_segments);
  wait_dependency();
  for (int t = 0; t < kStages; ++t) {
    load_inputs<n_warps>(p, tile, t, stages[t].x);
    cp_async_commit();
  }
  const int column = warp_id() * n, n_warp_columns = min(n, tile.n_columns - column);
  float total[n] = {}, sums[n] = {};
  for (int t = 0; t < tile.n_stages; ++t) {
    FloatStage<kColumns>& stage = stages[t % kStages];
    cp_async_wait<kStages - 1>();
    __syncthreads();
    const int segment = tile.segment(p, t);
    if (n_warp_columns > 0) {
      multiply_stage<n>(stage.weights, stage.x + column, FloatTile::n_groups(matrix, segment, t), sums);
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
    for (int c = 0; c < n; ++c) {
      if (is_split && c < n_warp_columns) own.send(segment, column + c, sums[c]);
      total[c] += sums[c];
      sums[c] = 0;
    }
  }
  if (is_split) return own.write(p, tile);
#pragma unroll
  for (int c = 0; c < n; ++c) {
    if (c < n_warp_columns) write_float_output(p, tile, column + c, lane_id(), total[c]);
  }
}

extern "C" __global__ void __launch_bounds__(64, 5) gemm_floats_8(__grid_constant__ const LinearParams p) {
  gemm_floats<2, 4>(p);
}
extern "C" __global__ void __launch_bounds__(128, 2) gemm_floats_16(__grid_constant__ const LinearParams p) {
  gemm_floats<4, 4>(p);
}
extern "C" __global__ void __launch_bounds__(128, 2) gemm_floats_32(__grid_constant__ const LinearParams p) {
  gemm_floats<4, 8>(p);
}
extern "C" __global__ void __launch_bounds__(128, 2) gemm_floats_64(__grid_constant__ const LinearParams p) {
  gemm_floats<4, 16>(p);
}

}  // namespace zinc::simt
