// out[m, o] = sum_k x[m, k] * weight[o, k] on integer matrix cores, for many rows of rounded activations. A program of
// this file begins with one format/<f>.h.
// A block has 128 weight rows and 64 rows of activations, a warp 32 by 32: two by four tiles of 16 by 8. A segment of
// both is copied into shared memory, as it lies, while the one before is multiplied; words of the panels are fragments
// as they are (see panel.h). A segment's value is that of quantized.h, so the results are linear.cu's to the bit.
#include "backend/simt/dialect.h"

namespace zinc::simt {

using F = WeightFormat;
constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);
constexpr int kRowTiles = 2, kColumnTiles = 4, kPanels = kTileRows / kPanelRows;
constexpr int kStageStride = kSegmentElems + 16;  // bytes: eight rows start in different banks

struct Stage {
  u8 weights[kPanels][kSegmentBytes];
  signed char q[kTileColumns * kStageStride];
  float scale[kTileColumns][kSegmentGroups];
  int sum[kTileColumns][kSegmentGroups];
};

// What a block works on.
struct Block {
  const Matrix* matrix;
  const u8* weights;
  int part, expert, first_panel;
  int n_columns;  // rows of activations
};

// Begins to stage a segment. rows: which row of the activations each column is; those past the last repeat it.
ZINC_DEVICE void stage_segment(const LinearParams& p, const Block& block, const int* rows, Stage& stage, int segment,
                               int n_groups) {
  const Rounded& x = p.rounded;
  const int thread = static_cast<int>(threadIdx.x);
  const int n_pieces = kPanelRows * (F::kHeaderBytes + n_groups * F::kGroupBytes) / 16;
  const u8* weights = block.weights + static_cast<long long>(segment) * kSegmentBytes;
  for (int panel = 0; panel < kPanels; ++panel) {
    if ((block.first_panel + panel) * kPanelRows >= block.matrix->n_out) break;
    const u8* from = weights + (block.first_panel + panel) * block.matrix->panel_bytes;
    for (int i = thread; i < n_pieces; i += kThreads) copy_async<16>(stage.weights[panel] + i * 16, from + i * 16);
  }
  for (int i = thread; i < kTileColumns * (kSegmentElems / 16); i += kThreads) {
    const int column = i / (kSegmentElems / 16), piece = i % (kSegmentElems / 16);
    const long long row = rows[column];
    copy_async<16>(stage.q + column * kStageStride + piece * 16,
                   x.q + row * x.stride + segment * kSegmentElems + piece * 16);
  }
  if (thread < kTileColumns * 2) {  // half of the groups of a column
    const int column = thread / 2, g = thread % 2 * 4;
    const long long row = rows[column];
    const long long group = row * (x.stride / kGroupElems) + segment * kSegmentGroups + g;
    if (F::kHasMin) copy_async<16>(&stage.sum[column][g], x.sum + group);
    if (F::kRoundedBlock == kGroupElems) {
      copy_async<16>(&stage.scale[column][g], x.scale + group);
    } else if (g == 0) {
      copy_async<4>(&stage.scale[column][0], x.scale + row * (x.stride / kSegmentElems) + segment);
    }
  }
  end_copies();
}

// Sums over a segment of min_g * xsum_g, on matrix cores: xsum = 64 * high + low, so that both halves are bytes.
template <class F>
ZINC_DEVICE void multiply_mins(const typename F::Header (&headers)[2], const int* sums, int (&mins)[4]) {
  const int i = lane_id() % 4;
  int low = 0, high = 0;  // of groups 4i..4i+3
  if (i < 2) {
    const int4 x = reinterpret_cast<const int4*>(sums)[i];
    low = (x.x & 63) | (x.y & 63) << 8 | (x.z & 63) << 16 | (x.w & 63) << 24;
    high = (x.x >> 6 & 255) | (x.y >> 6 & 255) << 8 | (x.z >> 6 & 255) << 16 | (x.w >> 6 & 255) << 24;
  }
  int a[2] = {0, 0};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const typename F::Header& header = headers[h];
    const int first = header.min(0) | header.min(1) << 8 | header.min(2) << 16 | header.min(3) << 24;
    const int second = header.min(4) | header.min(5) << 8 | header.min(6) << 16 | header.min(7) << 24;
    a[h] = i == 0 ? first : i == 1 ? second : 0;
  }
  int of_low[4] = {}, of_high[4] = {};
  multiply_16(of_low, a[0], a[1], low);
  multiply_16(of_high, a[0], a[1], high);
#pragma unroll
  for (int e = 0; e < 4; ++e) mins[e] = of_low[e] + 64 * of_high[e];
}

// 16 of the warp's 32 rows, from first_row on, times some of its 32 staged rows of activations, one segment: total +=
// value. All at once would need more registers than two blocks of a multiprocessor have.
template <class F, int kTiles>
ZINC_DEVICE void multiply_segment(const u8* segment, int first_row, const Stage& stage, int first_column, int n_groups,
                                  float (*total)[4]) {
  const int quad = lane_id() / 4, i = lane_id() % 4, row = first_row + quad;
  const typename F::Header headers[2] = {F::header(segment, row), F::header(segment, row + 8)};
  int sums[kTiles][4] = {};
  float values[kTiles][4] = {};
#pragma unroll
  for (int g = 0; g < kSegmentGroups; ++g) {
    if (g >= n_groups) break;
    int a[4];
    F::fragment(segment, row, g, i, a[0], a[2]);
    F::fragment(segment, row + 8, g, i, a[1], a[3]);
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      const int column = first_column + c * 8;
      const int* from = reinterpret_cast<const int*>(stage.q + (column + quad) * kStageStride + g * kGroupElems);
      const int b[2] = {from[i], from[i + 4]};
      if constexpr (F::kHalfScales) {
        int low[4] = {}, high[4] = {};
        multiply_16(low, a[0], a[1], b[0]);
        multiply_16(high, a[2], a[3], b[1]);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sums[c][e] += headers[e / 2].scale(2 * g) * low[e] + headers[e / 2].scale(2 * g + 1) * high[e];
        }
      } else {
        int dot[4] = {};
        multiply_32(dot, a, b);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int its_column = column + 2 * i + e % 2;
          if constexpr (F::kRoundedBlock == kGroupElems) {
            values[c][e] = add_group<F>(headers[e / 2], g, dot[e], stage.scale[its_column][g],
                                        F::kHasMin ? stage.sum[its_column][g] : 0, values[c][e]);
          } else {
            sums[c][e] += headers[e / 2].scale(g) * dot[e];
          }
        }
      }
    }
  }
#pragma unroll
  for (int c = 0; c < kTiles; ++c) {
    int mins[4] = {};
    if constexpr (F::kHasMin && F::kRoundedBlock == kSegmentElems) {
      multiply_mins<F>(headers, stage.sum[first_column + c * 8 + quad], mins);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if constexpr (F::kRoundedBlock == kSegmentElems) {
        const float xscale = stage.scale[first_column + c * 8 + 2 * i + e % 2][0];
        values[c][e] = segment_value<F>(headers[e / 2], sums[c][e], mins[e], xscale);
      }
      total[c][e] += values[c][e];
    }
  }
}

// Which matrix and panels; which rows of activations, and where their results go. False: no work.
ZINC_DEVICE bool find_block(const LinearParams& p, Block& block, int* rows, int* results) {
  int tile = static_cast<int>(blockIdx.x);
  for (block.part = 0; block.part + 1 < p.n_parts; ++block.part) {
    const int n_tiles = (p.parts[block.part].n_out + kTileRows - 1) / kTileRows;
    if (tile < n_tiles) break;
    tile -= n_tiles;
  }
  block.matrix = &p.parts[block.part];
  block.first_panel = tile * kPanels;
  block.expert = 0;
  const int y = static_cast<int>(blockIdx.y), column = static_cast<int>(threadIdx.x);
  int first = y * kTileColumns;
  if (p.expert_ids) {
    if (y >= *p.tiles.n_tiles) return false;
    block.expert = p.tiles.tiles[3 * y];
    first = p.tiles.tiles[3 * y + 1];
    block.n_columns = p.tiles.tiles[3 * y + 2];
  } else {
    block.n_columns = min(kTileColumns, *p.n_rows * p.per_row - first);
    if (block.n_columns <= 0) return false;
  }
  block.weights = block.matrix->bytes + block.expert * block.matrix->matrix_bytes;
  if (column < kTileColumns) {
    const int at = first + min(column, block.n_columns - 1);
    const int result = p.expert_ids ? p.tiles.order[at] : at;
    results[column] = result;
    rows[column] = p.expert_ids && !p.x_per_used ? result / p.n_used : result;
  }
  __syncthreads();
  return true;
}

// Two blocks share a multiprocessor of 160 KB where their stages fit; one has all registers otherwise.
constexpr int kBlocks = 4 * sizeof(Stage) <= (160 << 10) ? 2 : 1;

// Grid: tiles of weight rows of all parts, tiles of activations.
extern "C" __global__ void __launch_bounds__(256, kBlocks) gemm(__grid_constant__ const LinearParams p) {
  extern __shared__ float4 shared[];
  __shared__ int rows[kTileColumns], results[kTileColumns];
  Stage* stages = reinterpret_cast<Stage*>(shared);
  let_next_start();
  wait_for_previous();
  Block block;
  if (!find_block(p, block, rows, results)) return;
  const Matrix& matrix = *block.matrix;
  const int panel = block.first_panel + warp_id() % kPanels, first_column = warp_id() / kPanels * (kColumnTiles * 8);
  const bool is_inside = panel * kPanelRows < matrix.n_out && first_column < block.n_columns;
  const auto n_groups = [&](int s) { return s + 1 < matrix.n_segments ? kSegmentGroups : matrix.n_last_groups; };
  float total[kRowTiles][kColumnTiles][4] = {};
  stage_segment(p, block, rows, stages[0], 0, n_groups(0));
  for (int s = 0; s < matrix.n_segments; ++s) {
    await_copies<0>();
    __syncthreads();
    if (s + 1 < matrix.n_segments) stage_segment(p, block, rows, stages[(s + 1) % 2], s + 1, n_groups(s + 1));
    const Stage& stage = stages[s % 2];
    if (!is_inside) continue;
    constexpr int kTiles = F::kRoundedBlock == kGroupElems ? kColumnTiles / 2 : kColumnTiles;
#pragma unroll
    for (int i = 0; i < kRowTiles * kColumnTiles; i += kTiles) {
      const int t = i / kColumnTiles, c = i % kColumnTiles;
      multiply_segment<F, kTiles>(stage.weights[warp_id() % kPanels], t * 16, stage, first_column + c * 8, n_groups(s),
                                  total[t] + c);
    }
  }
  if (!is_inside) return;
  const float* bias = p.biases[block.part];
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int o = panel * kPanelRows + t * 16 + e / 2 * 8 + lane_id() / 4;
        const int column = first_column + c * 8 + lane_id() % 4 * 2 + e % 2;
        if (o >= matrix.n_out || column >= block.n_columns) continue;
        float value = total[t][c][e];
        if (p.expert_scales[block.part]) value *= p.expert_scales[block.part][block.expert];
        if (bias) value += bias[static_cast<long long>(block.expert) * matrix.n_out + o];
        const long long at = static_cast<long long>(results[column]) * matrix.n_out + o;
        p.outs[block.part][at] = p.added ? p.added[at] + value : value;
      }
    }
  }
}

}  // namespace zinc::simt
