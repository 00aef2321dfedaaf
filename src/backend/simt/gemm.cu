// out[m, o] = sum_k x[m, k] * weight[o, k] on integer matrix cores, for many rows of rounded activations. A program of
// this file begins with one format/<f>.h.
// A block has 128 weight rows and 64 rows of activations, a warp 32 by 32: two by four tiles of 16 by 8. Weights go from
// memory straight into fragments (see panel.h); a segment of the activations is staged in shared memory while the one
// before is multiplied. A segment's value is that of quantized.h, so the results are linear.cu's to the bit.
#include "backend/simt/dialect.h"

namespace zinc::simt {

using F = WeightFormat;
constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);
constexpr int kRowTiles = 2, kColumnTiles = 4;
constexpr int kStageStride = kSegmentElems + 16;  // bytes: eight rows start in different banks

struct Stage {
  signed char q[kTileColumns * kStageStride];
  float scale[kTileColumns][kSegmentGroups + 1];
  int sum[kTileColumns][kSegmentGroups + 1];
};

// d += a * b, 16 x 8 x 32 signed bytes; and the half of it, 16 x 8 x 16.
ZINC_DEVICE void multiply_32(int (&d)[4], const int (&a)[4], const int (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();  // never launched on older parts
#endif
}
ZINC_DEVICE void multiply_16(int (&d)[4], int a0, int a1, int b0) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a0), "r"(a1), "r"(b0));
#else
  __trap();
#endif
}

ZINC_DEVICE void copy_16(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
#endif
}
ZINC_DEVICE void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}
ZINC_DEVICE void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
}

// Begins to stage a segment of the block's activations. Rows past the last repeat it: their results are not written.
ZINC_DEVICE void stage_segment(const LinearParams& p, Stage& stage, int first, int n_total, int segment) {
  const Rounded& x = p.rounded;
  for (int i = static_cast<int>(threadIdx.x); i < kTileColumns * (kSegmentElems / 16); i += kThreads) {
    const int column = i / (kSegmentElems / 16), piece = i % (kSegmentElems / 16);
    const long long row = min(first + column, n_total - 1);
    copy_16(stage.q + column * kStageStride + piece * 16, x.q + row * x.stride + segment * kSegmentElems + piece * 16);
  }
  end_copies();
  for (int i = static_cast<int>(threadIdx.x); i < kTileColumns * kSegmentGroups; i += kThreads) {
    const int column = i / kSegmentGroups, g = i % kSegmentGroups;
    const long long row = min(first + column, n_total - 1);
    if (F::kHasMin) stage.sum[column][g] = x.sum[row * (x.stride / kGroupElems) + segment * kSegmentGroups + g];
    if (F::kRoundedBlock == kGroupElems) {
      stage.scale[column][g] = x.scale[row * (x.stride / kGroupElems) + segment * kSegmentGroups + g];
    } else if (g == 0) {
      stage.scale[column][0] = x.scale[row * (x.stride / kSegmentElems) + segment];
    }
  }
}

// The warp's 32 rows times 32 staged rows of activations, one segment: total += value.
template <class F>
ZINC_DEVICE void multiply_segment(const u8* segment, const Stage& stage, int first_column, int n_groups,
                                  float (&total)[kRowTiles][kColumnTiles][4]) {
  const int quad = lane_id() / 4, i = lane_id() % 4;
  typename F::Header headers[kRowTiles * 2];
#pragma unroll
  for (int r = 0; r < kRowTiles * 2; ++r) headers[r] = F::header(segment, r * 8 + quad);
  int sums[kRowTiles][kColumnTiles][4] = {}, mins[kRowTiles][kColumnTiles][4] = {};
  float values[kRowTiles][kColumnTiles][4] = {};
#pragma unroll
  for (int g = 0; g < kSegmentGroups; ++g) {
    if (g >= n_groups) break;
    int a[kRowTiles][4];
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      F::fragment(segment, t * 16 + quad, g, i, a[t][0], a[t][2]);
      F::fragment(segment, t * 16 + 8 + quad, g, i, a[t][1], a[t][3]);
    }
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      const int column = first_column + c * 8;
      const int* from = reinterpret_cast<const int*>(stage.q + (column + quad) * kStageStride + g * kGroupElems);
      const int b[2] = {from[i], from[i + 4]};
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        if constexpr (F::kHalfScales) {
          int low[4] = {}, high[4] = {};
          multiply_16(low, a[t][0], a[t][1], b[0]);
          multiply_16(high, a[t][2], a[t][3], b[1]);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const typename F::Header& header = headers[t * 2 + e / 2];
            sums[t][c][e] += header.scale(2 * g) * low[e] + header.scale(2 * g + 1) * high[e];
          }
        } else {
          int dot[4] = {};
          multiply_32(dot, a[t], b);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const typename F::Header& header = headers[t * 2 + e / 2];
            const int its_column = column + 2 * i + e % 2;
            if constexpr (F::kRoundedBlock == kGroupElems) {
              values[t][c][e] = add_group<F>(header, g, dot[e], stage.scale[its_column][g],
                                             F::kHasMin ? stage.sum[its_column][g] : 0, values[t][c][e]);
            } else {
              sums[t][c][e] += header.scale(g) * dot[e];
              if constexpr (F::kHasMin) mins[t][c][e] += header.min(g) * stage.sum[its_column][g];
            }
          }
        }
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if constexpr (F::kRoundedBlock == kSegmentElems) {
          const float xscale = stage.scale[first_column + c * 8 + 2 * i + e % 2][0];
          values[t][c][e] = segment_value<F>(headers[t * 2 + e / 2], sums[t][c][e], mins[t][c][e], xscale);
        }
        total[t][c][e] += values[t][c][e];
      }
    }
  }
}

// Grid: tiles of weight rows, tiles of activations.
ZINC_KERNEL gemm(__grid_constant__ const LinearParams p) {
  extern __shared__ float4 shared[];
  Stage* stages = reinterpret_cast<Stage*>(shared);
  let_next_start();
  wait_for_previous();
  const Matrix& matrix = p.parts[0];
  const int n_total = *p.n_rows * p.per_row, first = static_cast<int>(blockIdx.y) * kTileColumns;
  if (first >= n_total) return;
  const int panel = static_cast<int>(blockIdx.x) * (kTileRows / kPanelRows) + warp_id() % 4;
  const int first_column = warp_id() / 4 * (kColumnTiles * 8);
  const bool is_inside = panel * kPanelRows < matrix.n_out && first + first_column < n_total;
  const u8* weights = matrix.bytes + panel * matrix.panel_bytes;
  float total[kRowTiles][kColumnTiles][4] = {};
  stage_segment(p, stages[0], first, n_total, 0);
  for (int s = 0; s < matrix.n_segments; ++s) {
    wait_for_copies();
    __syncthreads();
    if (s + 1 < matrix.n_segments) stage_segment(p, stages[(s + 1) % 2], first, n_total, s + 1);
    if (!is_inside) continue;
    const int n_groups = s + 1 < matrix.n_segments ? kSegmentGroups : matrix.n_last_groups;
    multiply_segment<F>(weights + static_cast<long long>(s) * kSegmentBytes, stages[s % 2], first_column, n_groups, total);
  }
  if (!is_inside) return;
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int o = panel * kPanelRows + t * 16 + e / 2 * 8 + lane_id() / 4;
        const int m = first + first_column + c * 8 + lane_id() % 4 * 2 + e % 2;
        if (o >= matrix.n_out || m >= n_total) continue;
        float value = total[t][c][e];
        if (p.biases[0]) value += p.biases[0][o];
        const long long at = static_cast<long long>(m) * matrix.n_out + o;
        p.outs[0][at] = p.added ? p.added[at] + value : value;
      }
    }
  }
}

}  // namespace zinc::simt
