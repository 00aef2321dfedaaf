// out[t, o] = sum_k x[t, k] * weight[o, k] for floating-point weights and many tokens: tiles of 64 by 64 in shared
// memory, 16 outputs per thread. Sequential FMA over a segment, segments in order, so results are bit-identical to
// linear.cu. A program of this file begins with one format/<f>.h.
#include "backend/simt/device_common.h"

namespace zinc::simt {

using F = WeightFormat;
constexpr int kSegmentBytes = kPanelRows * kSegmentGroups * F::kGroupBytes;
constexpr int kPieces = kGroupElems / F::kPieceElems;  // of a row's group
constexpr int kLoads = kFloatTile * kPieces / kThreads;
constexpr int kFloatStride = kFloatTile + 4;

struct FloatTile {
  const Matrix* matrix;
  int part, first_row, first_token, n_tokens;
};

// A group of 32 inputs of both operands, in registers on the way to shared memory.
struct Group {
  uint4 weights[kLoads];
  float4 x[2];

  ZINC_DEVICE void load(const LinearParams& p, const FloatTile& tile, int segment, int g) {
    const Matrix& matrix = *tile.matrix;
    const int thread = static_cast<int>(threadIdx.x), n_panels = (matrix.n_out + kPanelRows - 1) / kPanelRows;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int row = (i * kThreads + thread) % kFloatTile, j = (i * kThreads + thread) / kFloatTile;
      const int panel = min((tile.first_row + row) / kPanelRows, n_panels - 1);
      const u8* from = matrix.bytes + panel * matrix.panel_bytes + static_cast<long long>(segment) * kSegmentBytes;
      weights[i] = float_piece<F>(from, row % kPanelRows, g, j);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = (i * kThreads + thread) / 8, k = segment * kSegmentElems + g * kGroupElems + thread % 8 * 4;
      const int row = tile.first_token + min(token, tile.n_tokens - 1);
      const float* from = p.x + static_cast<long long>(row) * matrix.n_in;
      if (matrix.n_in % 4 == 0) {
        x[i] = k < matrix.n_in ? *reinterpret_cast<const float4*>(from + k) : make_float4(0, 0, 0, 0);
      } else {
        const auto input = [&](int e) { return e < matrix.n_in ? from[e] : 0.0f; };
        x[i] = make_float4(input(k), input(k + 1), input(k + 2), input(k + 3));
      }
    }
  }
  ZINC_DEVICE void store(float (*smem_weights)[kFloatStride], float (*smem_x)[kFloatStride]) const {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int row = (i * kThreads + thread) % kFloatTile, j = (i * kThreads + thread) / kFloatTile;
#pragma unroll
      for (int e = 0; e < F::kPieceElems; ++e) {
        smem_weights[j * F::kPieceElems + e][row] = F::element(weights[i], e);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = (i * kThreads + thread) / 8, k = thread % 8 * 4;
      smem_x[k][token] = x[i].x;
      smem_x[k + 1][token] = x[i].y;
      smem_x[k + 2][token] = x[i].z;
      smem_x[k + 3][token] = x[i].w;
    }
  }
};

ZINC_DEVICE bool find_float_tile(const LinearParams& p, FloatTile& tile) {
  int row_tile = static_cast<int>(blockIdx.x);
  for (tile.part = 0; tile.part + 1 < p.n_parts; ++tile.part) {
    const int n_tiles = (p.parts[tile.part].n_out + kFloatTile - 1) / kFloatTile;
    if (row_tile < n_tiles) break;
    row_tile -= n_tiles;
  }
  tile.matrix = &p.parts[tile.part];
  tile.first_row = row_tile * kFloatTile;
  tile.first_token = static_cast<int>(blockIdx.y) * kFloatTile;
  tile.n_tokens = min(kFloatTile, *p.n_rows * p.vectors_per_row - tile.first_token);
  return tile.n_tokens > 0;
}

// Grid: weight row tiles of all parts, token tiles.
ZINC_KERNEL gemm_floats(__grid_constant__ const LinearParams p) {
  __shared__ __align__(16) float weights[2][kGroupElems][kFloatStride];
  __shared__ __align__(16) float xs[2][kGroupElems][kFloatStride];
  launch_dependents();
  wait_dependency();
  FloatTile tile;
  if (!find_float_tile(p, tile)) return;
  const Matrix& matrix = *tile.matrix;
  const int row = static_cast<int>(threadIdx.x) % 16 * 4, token = static_cast<int>(threadIdx.x) / 16 * 4;
  const auto n_groups = [&](int s) { return s + 1 < matrix.n_segments ? kSegmentGroups : matrix.n_last_groups; };
  float total[4][4] = {}, sum[4][4] = {};
  Group next;
  next.load(p, tile, 0, 0);
  int buffer = 0;
  for (int s = 0; s < matrix.n_segments; ++s) {
    for (int g = 0; g < n_groups(s); ++g, buffer ^= 1) {
      next.store(weights[buffer], xs[buffer]);
      __syncthreads();
      const bool ends = g + 1 == n_groups(s);
      if (!ends || s + 1 < matrix.n_segments) next.load(p, tile, ends ? s + 1 : s, ends ? 0 : g + 1);
#pragma unroll 8
      for (int k = 0; k < kGroupElems; ++k) {
        const float4 w = *reinterpret_cast<const float4*>(&weights[buffer][k][row]);
        const float4 x = *reinterpret_cast<const float4*>(&xs[buffer][k][token]);
        const float ws[4] = {w.x, w.y, w.z, w.w}, x4[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
#pragma unroll
          for (int r = 0; r < 4; ++r) sum[c][r] = fmaf(ws[r], x4[c], sum[c][r]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      total[i / 4][i % 4] += sum[i / 4][i % 4];
      sum[i / 4][i % 4] = 0;
    }
  }
  const float* bias = p.biases[tile.part];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int o = tile.first_row + row + r;
      if (o >= matrix.n_out || token + c >= tile.n_tokens) continue;
      float value = total[c][r];
      if (bias) value += bias[o];
      const long long out_offset = static_cast<long long>(tile.first_token + token + c) * matrix.n_out + o;
      p.outs[tile.part][out_offset] = p.residual ? p.residual[out_offset] + value : value;
    }
  }
}

}  // namespace zinc::simt
