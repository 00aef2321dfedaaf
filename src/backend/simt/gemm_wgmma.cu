// out[t, o] = sum_k x[t, k] * weight[o, k] with Hopper's wgmma, for many tokens with quantized activations. A program
// of this file begins with one format/<f>.h. Persistent, warp-specialized: a block takes tile after tile of 128 weight
// rows by up to 128 tokens. The producer warpgroup copies packed weights and activations. Two consumer warpgroups have
// 64 weight rows each: a lane unpacks its A fragment into registers, activations are read from shared memory. Integer
// scales are multiplied into the weights, as two byte planes (byte_planes.h), and a segment is summed as one integer.
// Power-of-two scales are multiplied into bf16 weights; these, the activations and their sums are exact. Other scales
// are applied to the dot product of each group. A segment's value is that of quantized_weights.h, so results are
// bit-identical to linear.cu.
#include "backend/simt/byte_planes.h"
#include "backend/simt/wgmma.h"

namespace zinc::simt {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

using F = WeightFormat;

// Whether a format can multiply its scales into bf16 weights.
template <class F, class = void>
struct FoldedScales {
  static constexpr bool kEnabled = false;
  static constexpr float kFactor = 1;
};
template <class F>
struct FoldedScales<F, decltype(void(F::kFolded))> {
  static constexpr bool kEnabled = true;
  static constexpr float kFactor = F::kFolded;
};

// std::conditional.
template <bool condition, class A, class B>
struct Conditional {
  using Type = A;
};
template <class A, class B>
struct Conditional<false, A, B> {
  using Type = B;
};

constexpr WgmmaKind kKind = F::kQ8Block == kSegmentElems ? kWgmmaIntegerScales
                            : FoldedScales<F>::kEnabled  ? kWgmmaFoldedScales
                                                         : kWgmmaFloatScales;
constexpr WgmmaLayout kLayout = wgmma_layout(F::kHeaderBytes, F::kGroupBytes, kKind);
constexpr int kStages = kLayout.n_stages, kTilesInFlight = kLayout.n_tiles_in_flight, kStageGroups = kLayout.groups;
constexpr int kCommitLag = kStages - 2;  // stages in flight before the oldest is committed to the consumers
constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);
constexpr int kHalfBytes = kTileRows * 128;  // half a stage's activations: rows of 128 bytes
constexpr int kPanels = kTileRows / kPanelRows;
static_assert(kTileRows == kWgmmaTokens);

// Scales of the tokens of one stage. The sums of activations are f16, in two parts.
struct IntegerScales {
  float x[kWgmmaTokens];
  uint4 low_sums[kWgmmaTokens], high_sums[kWgmmaTokens];
};
struct FloatScales {
  float x[kStageGroups][kWgmmaTokens];
  int sum[kStageGroups][kWgmmaTokens];
};
struct alignas(1024) Stage {
  u8 x[2 * kHalfBytes];
  u8 weights[kPanels][kLayout.panel_bytes];
  Conditional<kKind == kWgmmaIntegerScales, IntegerScales, FloatScales>::Type scales;
};
static_assert(sizeof(Stage) == kLayout.stage_bytes && sizeof(Stage::scales) == kLayout.scale_bytes);

struct Tile {
  int part, expert, first_panel;
  int first, n_tokens;  // n_tokens 0: no more tiles
};

struct Shared {
  Stage stages[kStages];
  int out_rows[kTilesInFlight][kWgmmaTokens];  // output row of each token
  u32 activation_offsets[2][kWgmmaTokens];     // of each token's activations, in 16 bytes; for the producer
  Tile tiles[kTilesInFlight];
  u64 full[kStages], empty[kStages];
};
static_assert(sizeof(Shared::stages) + sizeof(Shared::out_rows) + sizeof(Shared::activation_offsets) +
                  sizeof(Shared::tiles) + sizeof(Shared::full) + sizeof(Shared::empty) + 8 <=
              wgmma_shared_bytes(kLayout));
static_assert(wgmma_shared_bytes(kLayout) <= 227 * 1024);

// Consecutive tiles share activations if there are experts, else weights. If at most half of the blocks would have a
// tile in the last wave, each of these tiles is split between two blocks, by tokens.
ZINC_DEVICE Tile find_tile(const LinearParams& p, int index) {
  Tile tile;
  tile.n_tokens = 0;
  const int n_row_tiles = p.n_row_tiles;
  const int n_rows = *p.n_rows * p.vectors_per_row;
  const int n_token_tiles = p.expert_ids ? *p.tiles.n_tiles : (n_rows + kWgmmaTokens - 1) / kWgmmaTokens;
  const int n_blocks = static_cast<int>(gridDim.x);
  const int n_tiles = n_row_tiles * n_token_tiles, n_last = n_tiles % n_blocks;
  const int in_last = index - (n_tiles - n_last);
  int half = 0;  // 0: not split, 1: first half, 2: second half
  if (!p.expert_ids && in_last >= 0 && 2 * n_last <= n_blocks) {
    index -= in_last - in_last / 2;
    half = 1 + in_last % 2;
  }
  if (index >= n_tiles) return tile;
  int row_tile = p.expert_ids ? index % n_row_tiles : index / n_token_tiles;
  const int token_tile = p.expert_ids ? index / n_row_tiles : index % n_token_tiles;
  for (tile.part = 0; tile.part + 1 < p.n_parts; ++tile.part) {
    const int n_tiles = (p.parts[tile.part].n_out + kTileRows - 1) / kTileRows;
    if (row_tile < n_tiles) break;
    row_tile -= n_tiles;
  }
  tile.first_panel = row_tile * (kTileRows / kPanelRows);
  tile.expert = p.expert_ids ? p.tiles.tiles[3 * token_tile] : 0;
  constexpr int kHalf = kWgmmaTokens / 2;
  tile.first = p.expert_ids ? p.tiles.tiles[3 * token_tile + 1] : token_tile * kWgmmaTokens + half / 2 * kHalf;
  tile.n_tokens = p.expert_ids ? p.tiles.tiles[3 * token_tile + 2]
                               : max(0, min(half > 0 ? kHalf : kWgmmaTokens, n_rows - tile.first));
  return tile;
}

ZINC_DEVICE int groups_of(const Matrix& matrix, int segment) {
  return segment + 1 < matrix.n_segments ? kSegmentGroups : matrix.n_last_groups;
}

// ---- producer ----

ZINC_DEVICE void producer_sync() { named_barrier_sync<128>(1); }

// A producer thread's share of a tile: one token's scales, a piece of 16 tokens, and maybe a panel.
struct TileLoader {
  Tile tile;
  const Matrix* matrix;
  const u8* segment;  // of the thread's panel
  const uint4* x;
  const u32* activation_offsets;  // of its 16 tokens, 8 apart
  const float* scales;            // of the thread's token
  const int* sums;
  const u16* wgmma_aux;  // likewise

  ZINC_DEVICE TileLoader(const LinearParams& p, int index, int n_tiles_before, int thread, Shared& shared) {
    int* out_rows = shared.out_rows[n_tiles_before % kTilesInFlight];
    if (thread == 0) shared.tiles[n_tiles_before % kTilesInFlight] = find_tile(p, index);
    producer_sync();
    tile = shared.tiles[n_tiles_before % kTilesInFlight];
    matrix = &p.parts[tile.n_tokens > 0 ? tile.part : 0];
    if (tile.n_tokens == 0) return;
    const auto activation_row = [&](int out_row) {
      return p.expert_ids && !p.x_per_expert ? out_row / p.n_experts_used : out_row;
    };
    const int token = tile.first + min(thread, tile.n_tokens - 1);
    const int out_row = p.expert_ids ? p.tiles.order[token] : token;
    out_rows[thread] = out_row;
    const long long x_row = activation_row(out_row);
    const int stride = p.q8.stride;
    scales = p.q8.scale + x_row * (stride / F::kQ8Block);
    sums = p.q8.sum + x_row * (stride / kGroupElems);
    wgmma_aux = p.q8.wgmma_aux + x_row * (stride / kSegmentElems) * (2 * kSegmentGroups);
    u32* token_offsets = shared.activation_offsets[n_tiles_before % 2];
    token_offsets[thread] = static_cast<u32>(x_row * (stride / (kKind == kWgmmaFoldedScales ? 8 : 16)));
    activation_offsets = token_offsets + thread / 16;
    producer_sync();
    x = kKind == kWgmmaFoldedScales ? reinterpret_cast<const uint4*>(p.q8.wgmma_aux)
                                    : reinterpret_cast<const uint4*>(p.q8.q);
    x += thread % 16;
    const int n_panels = (matrix->n_out + kPanelRows - 1) / kPanelRows;
    const int panel = min(tile.first_panel + thread % kPanels, n_panels - 1);  // rows past the last are not stored
    segment = matrix->bytes + tile.expert * matrix->matrix_bytes + panel * matrix->panel_bytes;
  }
  // Sixteen lanes copy a token's 256 bytes.
  ZINC_DEVICE void copy_activations(Stage& stage, int thread) {
    u8* to = stage.x + thread % 16 / 8 * kHalfBytes + swizzled_offset(thread / 16, thread % 8);
#pragma unroll
    for (int i = 0; i < kWgmmaTokens / 8; ++i) {
      if (i * 8 < tile.n_tokens) cp_async_16(to + i * 8 * 128, x + activation_offsets[8 * i]);
    }
    x += kWgmmaTokenBytes / 16;
  }
  ZINC_DEVICE void copy_scales(IntegerScales& to, int thread, int stage) const {
    cp_async<4>(&to.x[thread], scales + stage);
    if constexpr (F::kHasMin) {
      cp_async_16(&to.low_sums[thread], wgmma_aux + stage * (2 * kSegmentGroups));
      cp_async_16(&to.high_sums[thread], wgmma_aux + stage * (2 * kSegmentGroups) + kSegmentGroups);
    }
  }
  ZINC_DEVICE void copy_scales(FloatScales& to, int thread, int stage) const {
#pragma unroll
    for (int g = 0; g < kStageGroups; ++g) {
      cp_async<4>(&to.x[g][thread], scales + stage * kStageGroups + g);
      if constexpr (F::kHasMin) cp_async<4>(&to.sum[g][thread], sums + stage * kStageGroups + g);
    }
  }
  // One panel by one thread: a segment, or its header and half of its groups.
  ZINC_DEVICE void copy_weights(u8* to, int stage, u64* full) const {
    constexpr int kHeader = kPanelRows * F::kHeaderBytes, kGroup = kPanelRows * F::kGroupBytes;
    constexpr int kParts = kSegmentGroups / kStageGroups;
    const u8* from = segment + static_cast<long long>(stage / kParts) * kSegmentBytes;
    const int first = stage % kParts * kStageGroups, n = min(kStageGroups, groups_of(*matrix, stage / kParts) - first);
    if constexpr (kParts == 1) {
      bulk_copy_tracked(to, from, kHeader + n * kGroup, full);
    } else {
      bulk_copy_tracked(to, from, kHeader, full);
      bulk_copy_tracked(to + kHeader, from + kHeader + first * kGroup, n * kGroup, full);
    }
  }
  static ZINC_DEVICE void bulk_copy_tracked(u8* to, const u8* from, int n_bytes, u64* full) {
    mbarrier_expect_tx(full, n_bytes);
    bulk_copy(to, from, n_bytes, full);
  }
};

ZINC_DEVICE int stages_of(const Matrix& matrix) {
  if (kKind != kWgmmaFoldedScales) return matrix.n_segments;
  return 2 * matrix.n_segments - (matrix.n_last_groups <= kStageGroups ? 1 : 0);
}

// Stages of consecutive tiles follow each other without a gap; a tile without tokens ends the stream. A stage is
// committed kCommitLag stages later, when its copies have arrived.
ZINC_DEVICE void run_producer(const LinearParams& p, Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x) - 2 * 128;
  int step = 0, n_tiles = 0;
  const auto commit = [&](int committed_step) {
    fence_proxy_async();
    mbarrier_arrive(&shared.full[committed_step % kStages]);
  };
  for (int t = static_cast<int>(blockIdx.x);; t += static_cast<int>(gridDim.x), ++n_tiles) {
    TileLoader source(p, t, n_tiles, thread, shared);
    if (source.tile.n_tokens == 0) break;
    const int n_stages = stages_of(*source.matrix);
    for (int s = 0; s < n_stages; ++s, ++step) {
      Stage& stage = shared.stages[step % kStages];
      u64* full = &shared.full[step % kStages];
      mbarrier_spin_wait(&shared.empty[step % kStages], (step / kStages + 1) & 1);
      if (thread < kPanels) source.copy_weights(stage.weights[thread], s, full);
      source.copy_activations(stage, thread);
      source.copy_scales(stage.scales, thread, s);
      cp_async_commit();
      cp_async_wait<kCommitLag>();
      if (step >= kCommitLag) commit(step - kCommitLag);
    }
  }
  cp_async_wait<0>();
  for (int s = max(0, step - kCommitLag); s < step; ++s) commit(s);
  mbarrier_spin_wait(&shared.empty[step % kStages], (step / kStages + 1) & 1);
  mbarrier_arrive(&shared.full[step % kStages]);
}

// ---- consumers ----

// The sums of min * xsum of 16 rows and 8 tokens: integers, exact in float.
ZINC_DEVICE void multiply_mins(const u32 (&mins)[2], u32 low, u32 high, float (&d)[4]) {
  for (float& sum : d) sum = 0;
  mma_m16n8k16_f16(d, mins[0], mins[1], mins[0], mins[1], low, high);
}

struct Lane {
  int quad, in_quad, warp;
  int row;  // in its panel: the first of the lane's two, 8 apart
  ZINC_DEVICE Lane() : quad(lane_id() / 4), in_quad(lane_id() % 4), warp(warp_id()), row(warp % 2 * 16 + quad) {}
};

// Descriptor of 32 bytes of each token: slice k of the stage's eight.
ZINC_DEVICE u64 activation_descriptor(const Stage& stage, int first, int k) {
  return wgmma_descriptor(shared_address(stage.x) + first * 128) +
         static_cast<u64>((k / 4 * kHalfBytes + k % 4 * 32) >> 4);
}

template <class F>
struct Headers {
  typename F::Header of[2];
  ZINC_DEVICE Headers(const Stage& stage, const Lane& lane)
      : of{F::header(stage.weights[lane.warp / 2], lane.row), F::header(stage.weights[lane.warp / 2], lane.row + 8)} {}
};

// total += the value of a segment from its integer sums.
template <class F, int N>
ZINC_DEVICE void add_segment(const Stage& stage, const Lane& lane, const int (&sums)[N / 2], float (&total)[N / 2]) {
  const IntegerScales& scales = stage.scales;
  const Headers<F> both_headers(stage, lane);
  const typename F::Header(&headers)[2] = both_headers.of;
  const float d[2] = {headers[0].d() * kPlaneFactor<F>, headers[1].d() * kPlaneFactor<F>};
  float dmin[2] = {0, 0};
  u32 mins[2] = {0, 0};
  if constexpr (F::kHasMin) {
#pragma unroll
    for (int row_half = 0; row_half < 2; ++row_half) {
      dmin[row_half] = headers[row_half].dmin();
      mins[row_half] = headers[row_half].two_mins(lane.in_quad);
    }
  }
#pragma unroll
  for (int c = 0; c < N / 8; ++c) {
    float of_mins[4];
    if constexpr (F::kHasMin) {
      multiply_mins(mins, reinterpret_cast<const u32*>(&scales.low_sums[c * 8 + lane.quad])[lane.in_quad],
                    reinterpret_cast<const u32*>(&scales.high_sums[c * 8 + lane.quad])[lane.in_quad], of_mins);
    }
    const float2 x = *reinterpret_cast<const float2*>(&scales.x[c * 8 + 2 * lane.in_quad]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float value = d[e / 2] * static_cast<float>(sums[c * 4 + e]);
      if constexpr (F::kHasMin) value = fmaf(-dmin[e / 2], of_mins[e], value);
      total[c * 4 + e] += value * (e % 2 == 0 ? x.x : x.y);
    }
  }
}

// A lane's A fragment of a group, in both byte planes.
struct GroupPlanes {
  u32 high[4], low[4];
};

template <class F>
ZINC_DEVICE void unpack(const Stage& stage, const Lane& lane, const typename F::Header (&headers)[2], int g,
                        GroupPlanes& out) {
#pragma unroll
  for (int row_half = 0; row_half < 2; ++row_half) {
    int first, second;
    F::raw_fragment(stage.weights[lane.warp / 2], lane.row + 8 * row_half, g, lane.in_quad, first, second);
    byte_planes<F>(headers[row_half], g, 0, first, out.high[row_half], out.low[row_half]);
    byte_planes<F>(headers[row_half], g, 1, second, out.high[row_half + 2], out.low[row_half + 2]);
  }
}

// A stage is a segment: accumulate the high planes, shift the sums, accumulate the low planes. With signed scales
// unpacking takes longer than the MMA, so one group in flight suffices and saves registers.
template <class F, int R>
ZINC_DEVICE void multiply_byte_planes(const Stage& stage, const Lane& lane, int (&sums)[R]) {
  constexpr int kInFlight = F::kSignedScales ? 1 : 2;
  const Headers<F> headers(stage, lane);
  GroupPlanes groups[kSegmentGroups];
#pragma unroll
  for (int g = 0; g < kSegmentGroups; ++g) {
    unpack<F>(stage, lane, headers.of, g, groups[g]);
    wgmma_fence();
    wgmma_i8<F::kSignedScales>(sums, groups[g].high, activation_descriptor(stage, 0, g), g > 0);
    wgmma_commit();
    if (g >= kInFlight) wgmma_wait<kInFlight>();
  }
  wgmma_wait<0>();
  wgmma_fence_operand(sums);
#pragma unroll
  for (int i = 0; i < R; ++i) sums[i] <<= kPlaneShift<F>;
  wgmma_fence();
#pragma unroll
  for (int g = 0; g < kSegmentGroups; ++g) wgmma_i8<false>(sums, groups[g].low, activation_descriptor(stage, 0, g), 1);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_fence_operand(sums);
}

// A lane's A fragment of a group: for one int8 wgmma, or two bf16 ones.
template <class F>
ZINC_DEVICE void unpack_group(const Stage& stage, const Lane& lane, const Headers<F>& headers, int g, int scale_of,
                              u32 (&a)[FoldedScales<F>::kEnabled ? 2 : 1][4]) {
  const u8* panel = stage.weights[lane.warp / 2];
#pragma unroll
  for (int row_half = 0; row_half < 2; ++row_half) {
    if constexpr (FoldedScales<F>::kEnabled) {
      u32 pairs[4];
      F::scaled_pairs(panel, lane.row + 8 * row_half, g, lane.in_quad, headers.of[row_half], scale_of, pairs);
#pragma unroll
      for (int k = 0; k < 4; ++k) a[k / 2][row_half + k % 2 * 2] = pairs[k];
    } else {
      int first, second;
      F::fragment(panel, lane.row + 8 * row_half, g, lane.in_quad, first, second);
      a[0][row_half] = static_cast<u32>(first);
      a[0][row_half + 2] = static_cast<u32>(second);
    }
  }
}

ZINC_DEVICE void multiply_group(const Stage& stage, int g, int first, const u32 (&a)[1][4], int (&dots)[32]) {
  wgmma_fence();
  wgmma_i8<true>(dots, a[0], activation_descriptor(stage, first, g), 0);
  wgmma_commit();
}
ZINC_DEVICE void multiply_group(const Stage& stage, int g, int first, const u32 (&a)[2][4], float (&dots)[32]) {
  wgmma_fence();
  wgmma_bf16(dots, a[0], activation_descriptor(stage, first, 2 * g), 0);
  wgmma_bf16(dots, a[1], activation_descriptor(stage, first, 2 * g + 1), 1);
  wgmma_commit();
}

// Waits for a group's dot products of tokens first .. first + 63, and adds them to the segment's values.
template <class F, class Dot>
ZINC_DEVICE void add_group(const FloatScales& scales, const Lane& lane, int g, int first, const Headers<F>& headers,
                           int scale_of, Dot (&dots)[32], float* values) {
  float2 x[8];  // loaded before the wait
#pragma unroll
  for (int c = 0; c < 8; ++c) x[c] = *reinterpret_cast<const float2*>(&scales.x[g][first + c * 8 + 2 * lane.in_quad]);
  float row[2] = {1, 1}, min[2] = {0, 0};
#pragma unroll
  for (int row_half = 0; row_half < 2; ++row_half) {
    if constexpr (!FoldedScales<F>::kEnabled) row[row_half] = headers.of[row_half].scale(scale_of);
    if constexpr (F::kHasMin) min[row_half] = headers.of[row_half].min(scale_of);
  }
  wgmma_wait<0>();
  wgmma_fence_operand(dots);
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    float2 sum = {0, 0};
    if constexpr (F::kHasMin) {
      const int2 int_sums = *reinterpret_cast<const int2*>(&scales.sum[g][first + c * 8 + 2 * lane.in_quad]);
      sum = make_float2(x[c].x * static_cast<float>(int_sums.x), x[c].y * static_cast<float>(int_sums.y));
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float factor = e % 2 == 0 ? x[c].x : x[c].y, dot = static_cast<float>(dots[c * 4 + e]);
      float& value = values[c * 4 + e];
      value = fmaf(dot, FoldedScales<F>::kEnabled ? factor : row[e / 2] * factor, value);
      if constexpr (F::kHasMin) value = fmaf(min[e / 2], e % 2 == 0 ? sum.x : sum.y, value);
    }
  }
}

// A stage: a segment, or half of one, the second if part is 1. Groups past the end of a row have activations and scales
// of zero.
template <class F, int N, int part>
ZINC_DEVICE void multiply_groups(const Stage& stage, const Lane& lane, float (&values)[N / 2]) {
  constexpr int kFirst = part * kStageGroups;
  const Headers<F> headers(stage, lane);
#pragma unroll
  for (int g = 0; g < kStageGroups; ++g) {
    u32 a[FoldedScales<F>::kEnabled ? 2 : 1][4];
    unpack_group<F>(stage, lane, headers, g, kFirst + g, a);
#pragma unroll
    for (int first = 0; first < N; first += 64) {
      typename Conditional<FoldedScales<F>::kEnabled, float, int>::Type dots[32];
      multiply_group(stage, g, first, a, dots);
      add_group<F>(stage.scales, lane, g, first, headers, kFirst + g, dots, values + first / 2);
    }
  }
}

// Calls store(accumulator index, output offset, row half) for each of the lane's outputs.
template <int N, class Store>
ZINC_DEVICE void for_each_output(const Tile& tile, const int* out_rows, const Lane& lane, int n_out, int o,
                                 const Store& store) {
#pragma unroll
  for (int c = 0; c < N / 8; ++c) {
    const int first = c * 8 + 2 * lane.in_quad;
    const int2 row_pair = *reinterpret_cast<const int2*>(out_rows + first);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (first + k >= tile.n_tokens) continue;
      const long long out_offset = static_cast<long long>(k == 0 ? row_pair.x : row_pair.y) * n_out + o;
      store(c * 4 + k, out_offset, 0);
      store(c * 4 + 2 + k, out_offset + 8, 1);
    }
  }
}

template <int N>
ZINC_DEVICE void write_tile(const LinearParams& p, const Tile& tile, const int* out_rows, const Lane& lane,
                            float (&total)[N / 2]) {
  const int n_out = p.parts[tile.part].n_out;
  const int o = tile.first_panel * kPanelRows + lane.warp * 16 + lane.quad;
  const bool is_in_bounds[2] = {o < n_out, o + 8 < n_out};
  if (FoldedScales<F>::kEnabled || p.expert_scales[tile.part]) {
    const float factor = p.expert_scales[tile.part] ? p.expert_scales[tile.part][tile.expert] : 1.0f;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) total[i] = total[i] * FoldedScales<F>::kFactor * factor;
  }
  if (p.biases[tile.part]) {
    const float* bias = p.biases[tile.part] + static_cast<long long>(tile.expert) * n_out + o;
    const float row_bias[2] = {is_in_bounds[0] ? bias[0] : 0.0f, is_in_bounds[1] ? bias[8] : 0.0f};
#pragma unroll
    for (int i = 0; i < N / 2; ++i) total[i] += row_bias[i % 4 / 2];
  }
  if (p.residual) {
    for_each_output<N>(tile, out_rows, lane, n_out, o, [&](int i, long long out_offset, int row_half) {
      if (is_in_bounds[row_half]) p.outs[tile.part][out_offset] = p.residual[out_offset] + total[i];
    });
  } else {
    float* out = p.outs[tile.part];
    for_each_output<N>(tile, out_rows, lane, n_out, o, [&](int i, long long out_offset, int row_half) {
      if (is_in_bounds[row_half]) out[out_offset] = total[i];
    });
  }
}

// Consumer side of the stage pipeline.
struct StageConsumer {
  Shared& shared;
  int step = 0;
  ZINC_DEVICE const Stage& wait_full() const {
    mbarrier_spin_wait(&shared.full[step % kStages], step / kStages & 1);
    return shared.stages[step % kStages];
  }
  ZINC_DEVICE void release() {
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive(&shared.empty[step % kStages]);
    ++step;
  }
};

template <class F, int N>
ZINC_DEVICE void multiply_integers(int n_segments, const Lane& lane, StageConsumer& consumer, float (&total)[N / 2]) {
  for (int s = 0; s < n_segments; ++s) {
    const Stage& stage = consumer.wait_full();
    int sums[N / 2];
    multiply_byte_planes<F>(stage, lane, sums);
    add_segment<F, N>(stage, lane, sums, total);
    consumer.release();
  }
}

template <class F, int N>
ZINC_DEVICE void multiply_floats(const Matrix& matrix, const Lane& lane, StageConsumer& consumer,
                                 float (&total)[N / 2]) {
  for (int s = 0; s < matrix.n_segments; ++s) {
    float values[N / 2] = {};
    multiply_groups<F, N, 0>(consumer.wait_full(), lane, values);
    consumer.release();
    if (FoldedScales<F>::kEnabled && groups_of(matrix, s) > kStageGroups) {
      multiply_groups<F, N, FoldedScales<F>::kEnabled ? 1 : 0>(consumer.wait_full(), lane, values);
      consumer.release();
    }
#pragma unroll
    for (int i = 0; i < N / 2; ++i) total[i] += values[i];
  }
}

template <class F, int N>
ZINC_DEVICE void multiply_tile(const LinearParams& p, const Tile& tile, const int* out_rows, StageConsumer& consumer) {
  const Lane lane;
  const Matrix& matrix = p.parts[tile.part];
  float total[N / 2] = {};
  if constexpr (F::kQ8Block == kSegmentElems) {
    multiply_integers<F, N>(matrix.n_segments, lane, consumer, total);
  } else {
    multiply_floats<F, N>(matrix, lane, consumer, total);
  }
  write_tile<N>(p, tile, out_rows, lane, total);
}

ZINC_DEVICE void run_consumer(const LinearParams& p, Shared& shared) {
  StageConsumer consumer{shared};
  for (int n_tiles = 0;; ++n_tiles) {
    consumer.wait_full();  // the tile is known with its first stage
    const Tile tile = shared.tiles[n_tiles % kTilesInFlight];
    const int* out_rows = shared.out_rows[n_tiles % kTilesInFlight];
    if (tile.n_tokens == 0) return;
    if (tile.n_tokens <= 64) {
      multiply_tile<F, 64>(p, tile, out_rows, consumer);
    } else if (kKind == kWgmmaIntegerScales && tile.n_tokens <= 96) {
      multiply_tile<F, kKind == kWgmmaIntegerScales ? 96 : 128>(p, tile, out_rows, consumer);
    } else {
      multiply_tile<F, 128>(p, tile, out_rows, consumer);
    }
  }
}

// Registers per thread; their total is what the block starts with.
constexpr int kConsumerRegisters = kKind == kWgmmaIntegerScales ? 224 : 216;
constexpr int kProducerRegisters = 3 * 168 - 2 * kConsumerRegisters;

// Grid: one block per SM.
extern "C" __global__ void __launch_bounds__(kWgmmaThreads, 1) gemm_wgmma(__grid_constant__ const LinearParams p) {
  extern __shared__ __align__(1024) u8 smem_bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(smem_bytes);
  launch_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&shared.full[i], 128);
      mbarrier_init(&shared.empty[i], 8);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  wait_dependency();
  if (warp_id() >= 8) {
    setmaxnreg_dec<kProducerRegisters>();
    run_producer(p, shared);
  } else {
    setmaxnreg_inc<kConsumerRegisters>();
    run_consumer(p, shared);
  }
}

#else
extern "C" __global__ void gemm_wgmma(__grid_constant__ const LinearParams) {}  // launched on sm_90a only
#endif

}  // namespace zinc::simt
