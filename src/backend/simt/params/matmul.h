// Parameters of pack.cu, of the embedding lookup, and of the matmuls of any number of rows: linear.cu, gemm*.cu.
#pragma once

#include "backend/simt/params/step.h"

namespace zinc::simt {

inline constexpr int kMaxParts = 4;  // matrices per launch of linear.cu and the gemms
// GEMM tiles: M weight rows by N tokens (activation rows; in MoE, token-expert pairs).
inline constexpr int kTileRows = 128;          // M of gemm.cu and gemm_wgmma.cu
inline constexpr int kTileTokens = 64;         // N of gemm.cu
inline constexpr int kFloatSegmentStages = 2;  // gemm_floats.cu: a stage of shared memory holds half a segment
inline constexpr int kFloatStageGroups = kSegmentGroups / kFloatSegmentStages;
inline constexpr int kFloatStageElems = kSegmentElems / kFloatSegmentStages;
inline constexpr int kWgmmaThreads = 384;     // gemm_wgmma.cu: two consumer warpgroups, one producer
inline constexpr int kWgmmaTokens = 128;      // N of gemm_wgmma.cu
inline constexpr int kWgmmaTokenBytes = 256;  // per token and stage: a segment of int8, or half a segment of bf16

// A matrix, or one per expert, in panels: [expert][panel][segment][piece][row], see format/*.h.
struct Matrix {
  const unsigned char* bytes;
  long long panel_bytes, matrix_bytes;
  int n_in, n_out;
  int n_segments, n_last_groups;  // n_last_groups: quant groups of the last segment
};

struct PackParams {
  const unsigned char* from;  // rows in the file's layout
  unsigned char* to;          // the first panel of these rows
  long long row_bytes, panel_bytes;
  int n_rows, n_in, n_segments;
};

struct EmbedParams {
  Step step;
  Matrix table;
  float* out;
};

// Token-expert pairs, pair = token * n_experts_used + u, sorted by expert and cut into tiles.
struct ExpertTiles {
  int* order;  // [pairs]
  int* tiles;  // [tiles, 3]: expert, first index in `order`, number of pairs
  int* n_tiles;
};

// One input times up to kMaxParts matrices of equal width and format.
struct LinearParams {
  Matrix parts[kMaxParts];
  float* outs[kMaxParts];
  const float* biases[kMaxParts];         // null: none
  const float* expert_scales[kMaxParts];  // likewise
  int n_parts;
  int act;                // kNoAct, or: parts 0 and 1 are gate and up, outs[0] is act(gate) * up
  const float* residual;  // added to the output; null: none. REQUIRES: one part

  Q8Activation q8;  // x, already quantized; q null: each warp quantizes its input
  const float* x;
  const float* norm_weight;
  float norm_eps;
  int is_normed;  // x is rms-normed first

  const int* n_rows;
  int vectors_per_row;               // inputs of each of the n_rows
  int warps_per_panel;               // a power of two up to kWarps
  int n_row_tiles;                   // of all parts, on tensor cores
  int n_splits;                      // gemm_floats.cu: blocks of a cluster, which split the K segments
  const int* expert_ids;             // [rows, n_experts_used]; null: one matrix for all
  int n_experts_used, x_per_expert;  // x_per_expert: each selected expert has its own input row
  ExpertTiles tiles;                 // of token-expert pairs, for the gemms
};

// How gemm_wgmma.cu applies a format's scales.
enum WgmmaKind : int {
  kWgmmaIntegerScales = 0,  // integer scales are multiplied into the weights, as two byte planes
  kWgmmaFloatScales = 1,    // scales are applied to the dot product of each group
  kWgmmaFoldedScales = 2    // power-of-two scales are multiplied into bf16 weights
};
// Its shared memory layout: stages of packed weights, activations and their scales; output rows; mbarriers.
struct WgmmaLayout {
  int groups;  // quant groups per stage
  int panel_bytes, scale_bytes, stage_bytes;
  int n_stages, n_tiles_in_flight;  // n_tiles_in_flight: tiles whose output rows are in shared memory
};
ZINC_HOST_DEVICE WgmmaLayout wgmma_layout(int header_bytes, int group_bytes, int kind) {
  WgmmaLayout w{};
  w.groups = kind == kWgmmaFoldedScales ? kSegmentGroups / 2 : kSegmentGroups;
  w.panel_bytes = kPanelRows * (header_bytes + w.groups * group_bytes);
  w.scale_bytes = kWgmmaTokens * (kind == kWgmmaIntegerScales ? 36 : 8 * w.groups);
  const int n_bytes = kWgmmaTokens * kWgmmaTokenBytes + kTileRows / kPanelRows * w.panel_bytes + w.scale_bytes;
  w.stage_bytes = (n_bytes + 1023) / 1024 * 1024;
  w.n_stages = 4 * w.stage_bytes <= 223 * 1024 ? 4 : 3;
  w.n_tiles_in_flight = w.n_stages + 2;
  return w;
}
ZINC_HOST_DEVICE int wgmma_shared_bytes(const WgmmaLayout& w) {
  return w.n_stages * w.stage_bytes + ((w.n_tiles_in_flight + 2) * kWgmmaTokens + w.n_tiles_in_flight * 5) * 4 +
         2 * w.n_stages * 8 + 8;
}

// ---- gemm_small.cu ----

// A program's geometry. A tile is a panel's K segment by `n_columns` activation rows; a team of warps multiplies it.
struct GemmSmallShape {
  int n_columns;
  int has_experts;
  int n_warps;          // per block
  int n_team_warps;     // per team: each has some of the columns
  int n_accumulators;   // panels that a block works on at a time
  int n_stages;         // per team
  int has_bulk_copies;  // else the warps of a team fill its stages with cp.async
};
ZINC_HOST_DEVICE int team_count(const GemmSmallShape& s) { return s.n_warps / s.n_team_warps; }
// Byte offsets in shared memory: an mbarrier per stage; per accumulator and warp the number of segments added; the
// sums; the stages.
struct GemmSmallSmem {
  int full, n_added, sums, stages, n_bytes;
};
ZINC_HOST_DEVICE GemmSmallSmem gemm_small_smem(const GemmSmallShape& s, int segment_bytes) {
  GemmSmallSmem smem{};
  smem.n_added = smem.full + 8 * team_count(s) * s.n_stages;
  smem.sums = align_128(smem.n_added + 4 * s.n_accumulators * s.n_team_warps);
  smem.stages = smem.sums + 4 * s.n_accumulators * kPanelRows * s.n_columns;
  smem.n_bytes = smem.stages + team_count(s) * s.n_stages * segment_bytes;
  return smem;
}

// ---- gemm_small_wgmma.cu ----

// A program's geometry: a tile is 64 * n_row_groups weight rows by n_columns tokens. A warpgroup for each row group and
// K split.
struct GemmSmallWgmmaShape {
  int n_columns;
  int n_row_groups;
  int n_k_splits;  // warpgroups that take turns with the segments of a row group
  int n_stages;
};
ZINC_HOST_DEVICE int gemm_small_wgmma_threads(const GemmSmallWgmmaShape& s) {
  return 128 * s.n_row_groups * s.n_k_splits + 64;  // teams and producers
}
ZINC_HOST_DEVICE int gemm_small_wgmma_stage_bytes(const GemmSmallWgmmaShape& s, int segment_bytes) {
  return (s.n_columns * (kSegmentElems + 36) + 2 * s.n_row_groups * segment_bytes + 1023) / 1024 * 1024;
}
// Totals in shared memory if teams share the segments; mbarriers and counters.
ZINC_HOST_DEVICE int gemm_small_wgmma_smem_bytes(const GemmSmallWgmmaShape& s, int segment_bytes) {
  const int totals = s.n_row_groups * (s.n_k_splits > 1 ? s.n_columns / 8 : 1) * 128 * 16;
  return s.n_stages * gemm_small_wgmma_stage_bytes(s, segment_bytes) +
         (totals + 16 * s.n_stages + 16 * s.n_row_groups + 1023) / 1024 * 1024;
}

}  // namespace zinc::simt
