// out[t, o] = sum_k x[t, k] * weight[o, k] with int8 MMA, for many tokens with quantized activations. A program of this
// file begins with one format/<f>.h.
// A block tile is 128 weight rows by 64 tokens, a warp tile 32 by 32: two by four mma tiles of 16 by 8. A K segment of
// both is copied into shared memory, still packed, while the previous one is multiplied; words of a panel are mma
// fragments (panel.h). A segment's value is that of quantized_weights.h, so results are bit-identical to linear.cu.
#include "backend/simt/mma_segment.h"

namespace zinc::simt {

using F = WeightFormat;
constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);
constexpr int kRowTiles = 2, kTokenTiles = 4, kPanels = kTileRows / kPanelRows;
constexpr int kStageStride = kSegmentElems + 16;  // bytes, padded against bank conflicts

struct Stage {
  u8 weights[kPanels][kSegmentBytes];
  signed char q[kTileTokens * kStageStride];
  float scale[kTileTokens][kSegmentGroups];
  int sum[kTileTokens][kSegmentGroups];
};

struct Block {
  const Matrix* matrix;
  const u8* weights;
  int part, expert, first_panel;
  int n_tokens;  // of the tile
};

// Issues the copies of a segment. rows: activation row of each token of the tile; those past the last repeat it.
ZINC_DEVICE void stage_segment(const LinearParams& p, const Block& block, const int* rows, Stage& stage, int segment,
                               int n_groups) {
  const Q8Activation& x = p.q8;
  const int thread = static_cast<int>(threadIdx.x);
  const int n_pieces = kPanelRows * (F::kHeaderBytes + n_groups * F::kGroupBytes) / 16;
  const u8* weights = block.weights + static_cast<long long>(segment) * kSegmentBytes;
  for (int panel = 0; panel < kPanels; ++panel) {
    if ((block.first_panel + panel) * kPanelRows >= block.matrix->n_out) break;
    const u8* from = weights + (block.first_panel + panel) * block.matrix->panel_bytes;
    for (int i = thread; i < n_pieces; i += kThreads) cp_async<16>(stage.weights[panel] + i * 16, from + i * 16);
  }
  for (int i = thread; i < kTileTokens * (kSegmentElems / 16); i += kThreads) {
    const int token = i / (kSegmentElems / 16), piece = i % (kSegmentElems / 16);
    const long long row = rows[token];
    cp_async<16>(stage.q + token * kStageStride + piece * 16,
                 x.q + row * x.stride + segment * kSegmentElems + piece * 16);
  }
  if (thread < kTileTokens * 2) {  // half of the groups of a token
    const int token = thread / 2, g = thread % 2 * 4;
    const long long row = rows[token];
    const long long group = row * (x.stride / kGroupElems) + segment * kSegmentGroups + g;
    if (F::kHasMin) cp_async<16>(&stage.sum[token][g], x.sum + group);
    if (F::kQ8Block == kGroupElems) {
      cp_async<16>(&stage.scale[token][g], x.scale + group);
    } else if (g == 0) {
      cp_async<4>(&stage.scale[token][0], x.scale + row * (x.stride / kSegmentElems) + segment);
    }
  }
  cp_async_commit();
}

// Sums over a segment of min_g * xsum_g, with MMA: xsum = 64 * high + low, so that both are bytes.
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
  mma_m16n8k16_s8(of_low, a[0], a[1], low);
  mma_m16n8k16_s8(of_high, a[0], a[1], high);
#pragma unroll
  for (int e = 0; e < 4; ++e) mins[e] = of_low[e] + 64 * of_high[e];
}

// The activations of a stage from token `first` on, for mma_segment().
struct StagedTokens {
  const Stage& stage;
  int first;

  ZINC_DEVICE void fragment(int c, int g, int (&b)[2]) const {
    const int quad = lane_id() / 4, lane_in_quad = lane_id() % 4;
    const int* from = reinterpret_cast<const int*>(stage.q + (first + c * 8 + quad) * kStageStride + g * kGroupElems);
    b[0] = from[lane_in_quad];
    b[1] = from[lane_in_quad + 4];
  }
  ZINC_DEVICE float2 scales(int c, int g) const {
    const int token = lane_token(c);
    return make_float2(stage.scale[token][g], stage.scale[token + 1][g]);
  }
  ZINC_DEVICE int2 sums(int c, int g) const {
    const int token = lane_token(c);
    return make_int2(stage.sum[token][g], stage.sum[token + 1][g]);
  }
  template <class F>
  ZINC_DEVICE void mins(const typename F::Header (&headers)[2], int c, float (&d)[4]) const {
    int exact[4];
    multiply_mins<F>(headers, stage.sum[first + c * 8 + lane_id() / 4], exact);
#pragma unroll
    for (int e = 0; e < 4; ++e) d[e] = static_cast<float>(exact[e]);
  }

 private:
  ZINC_DEVICE int lane_token(int c) const { return first + c * 8 + lane_id() % 4 * 2; }
};

// total += 16 of the warp's 32 weight rows times some of its 32 tokens, one segment. All at once would need more
// registers than two blocks per SM have.
template <class F, int kTiles>
ZINC_DEVICE void multiply_segment(const u8* segment, int first_row, const Stage& stage, int first_token, int n_groups,
                                  float (*total)[4]) {
  float values[kTiles][4];
  mma_segment<F, kTiles>(segment, first_row + lane_id() / 4, StagedTokens{stage, first_token}, n_groups, values);
#pragma unroll
  for (int c = 0; c < kTiles; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) total[c][e] += values[c][e];
  }
}

// Finds the block's matrix, panels, activation rows and output rows. False: no work.
ZINC_DEVICE bool find_block(const LinearParams& p, Block& block, int* rows, int* out_rows) {
  int tile = static_cast<int>(blockIdx.x);
  for (block.part = 0; block.part + 1 < p.n_parts; ++block.part) {
    const int n_tiles = (p.parts[block.part].n_out + kTileRows - 1) / kTileRows;
    if (tile < n_tiles) break;
    tile -= n_tiles;
  }
  block.matrix = &p.parts[block.part];
  block.first_panel = tile * kPanels;
  block.expert = 0;
  const int y = static_cast<int>(blockIdx.y), token = static_cast<int>(threadIdx.x);
  int first = y * kTileTokens;
  if (p.expert_ids) {
    if (y >= *p.tiles.n_tiles) return false;
    block.expert = p.tiles.tiles[3 * y];
    first = p.tiles.tiles[3 * y + 1];
    block.n_tokens = p.tiles.tiles[3 * y + 2];
  } else {
    block.n_tokens = min(kTileTokens, *p.n_rows * p.vectors_per_row - first);
    if (block.n_tokens <= 0) return false;
  }
  block.weights = block.matrix->bytes + block.expert * block.matrix->matrix_bytes;
  if (token < kTileTokens) {
    const int index = first + min(token, block.n_tokens - 1);
    const int out_row = p.expert_ids ? p.tiles.order[index] : index;
    out_rows[token] = out_row;
    rows[token] = p.expert_ids && !p.x_per_expert ? out_row / p.n_experts_used : out_row;
  }
  __syncthreads();
  return true;
}

// Two blocks per SM of 160 KB where their stages fit, else one with all registers.
constexpr int kBlocks = 4 * sizeof(Stage) <= (160 << 10) ? 2 : 1;

// Grid: weight row tiles of all parts, token tiles.
extern "C" __global__ void __launch_bounds__(256, kBlocks) gemm(__grid_constant__ const LinearParams p) {
  extern __shared__ float4 shared[];
  __shared__ int rows[kTileTokens], out_rows[kTileTokens];
  Stage* stages = reinterpret_cast<Stage*>(shared);
  launch_dependents();
  wait_dependency();
  Block block;
  if (!find_block(p, block, rows, out_rows)) return;
  const Matrix& matrix = *block.matrix;
  const int panel = block.first_panel + warp_id() % kPanels, first_token = warp_id() / kPanels * (kTokenTiles * 8);
  const bool is_in_bounds = panel * kPanelRows < matrix.n_out && first_token < block.n_tokens;
  const auto n_groups = [&](int s) { return s + 1 < matrix.n_segments ? kSegmentGroups : matrix.n_last_groups; };
  float total[kRowTiles][kTokenTiles][4] = {};
  stage_segment(p, block, rows, stages[0], 0, n_groups(0));
  for (int s = 0; s < matrix.n_segments; ++s) {
    cp_async_wait<0>();
    __syncthreads();
    if (s + 1 < matrix.n_segments) stage_segment(p, block, rows, stages[(s + 1) % 2], s + 1, n_groups(s + 1));
    const Stage& stage = stages[s % 2];
    if (!is_in_bounds) continue;
    constexpr int kTiles = F::kQ8Block == kGroupElems ? kTokenTiles / 2 : kTokenTiles;
#pragma unroll
    for (int i = 0; i < kRowTiles * kTokenTiles; i += kTiles) {
      const int t = i / kTokenTiles, c = i % kTokenTiles;
      multiply_segment<F, kTiles>(stage.weights[warp_id() % kPanels], t * 16, stage, first_token + c * 8, n_groups(s),
                                  total[t] + c);
    }
  }
  if (!is_in_bounds) return;
  const float* bias = p.biases[block.part];
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int c = 0; c < kTokenTiles; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int o = panel * kPanelRows + t * 16 + e / 2 * 8 + lane_id() / 4;
        const int token = first_token + c * 8 + lane_id() % 4 * 2 + e % 2;
        if (o >= matrix.n_out || token >= block.n_tokens) continue;
        float value = total[t][c][e];
        if (p.expert_scales[block.part]) value *= p.expert_scales[block.part][block.expert];
        if (bias) value += bias[static_cast<long long>(block.expert) * matrix.n_out + o];
        const long long out_offset = static_cast<long long>(out_rows[token]) * matrix.n_out + o;
        p.outs[block.part][out_offset] = p.residual ? p.residual[out_offset] + value : value;
      }
    }
  }
}

}  // namespace zinc::simt
