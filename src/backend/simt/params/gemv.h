// Parameters of gemv.cu, the matmuls of one row, and the compile-time shape of a launch.
#pragma once

#include "backend/simt/params/step.h"

namespace zinc::simt {

inline constexpr int kMaxGemvParts = 4;     // matrices per launch of gemv.cu
inline constexpr int kMaxExpertsUsed = 32;  // experts per token that gemv.cu can route and combine
inline constexpr int kMaxWarpPairs = 8;     // warp pairs per block of gemv.cu
inline constexpr int kMaxStages = 32;       // pipeline stages of gemv.cu: one lane of a warp issues each copy
inline constexpr int kSplitKWarps = 2;      // warps of a split-K block of gemv.cu, one segment each

// The activation rows of gemv.cu.
struct GemvInput {
  Q8Activation q8;  // already quantized; q null: each block quantizes x
  const float* x;
  const float* shared_expert_x;  // the shared expert's row; null: none
  const float* norm_weight;
  const float* gate;  // kGatedHeadsInput: the output gate
  float norm_eps;
  // kNormResidualInput: the row is (residual + norm(x)) * scale, and is stored to residual_out for later launches.
  float post_norm_eps;
  const float* post_norm_weight;  // null: ones
  const float* residual;
  const float* scale;  // null: one
  float* residual_out;
};

// For a launch that routes its token itself, from the split-K partial sums of the router's logits.
struct GemvRouting {
  const float* partial;  // [n_segments][n_experts]; null: experts are already selected
  const float* bias;     // null: none
  int* ids;              // [n_experts_used], stored for later launches
  float* weights;        // likewise
  float routed_scaling_factor;
};

// The compile-time shape of a launch of gemv.cu, and its shared memory layout. Host and kernel use the same functions.
enum GemvInputKind : int {
  kPlainInput = 0,
  kNormInput = 1,
  kGatedHeadsInput = 2,
  kQuantizedInput = 3,
  kNormResidualInput = 4
};
ZINC_HOST_DEVICE bool is_normed(int input) { return input == kNormInput || input == kNormResidualInput; }
struct GemvShape {
  int n_in;
  int input;                 // GemvInputKind
  int head_dim, gate_act;    // kGatedHeadsInput: norm per head, then the output gate
  int act;                   // GLU: an output is act(gate) * up; kNoAct: not a GLU
  int n_experts_used;        // MoE gate/up: selected experts, with separate outputs; 0: none
  int n_combined;            // MoE down: selected experts whose weighted sum is the output, an input row each; 0: none
  int has_second_matrix;     // GemvPart::second_matrix: a GLU's up, or the shared expert's down projection
  int n_shared_gate_splits;  // partial sums of the shared expert's gate
  int n_experts;             // > 0: the launch routes its token itself, from the router's partial logits
  int router_normalization;  // RouterWeights
  int n_parts;
  int n_warp_pairs;
  int cluster_size;             // blocks per cluster; they split the K segments of their panels
  int max_panels;               // per cluster
  int x_bytes, partial_floats;  // shared memory of the input rows, and of partial sums
  int pipeline_bytes;           // shared memory of the weight pipeline, at most
  int n_router_splits;          // partial sums of the router's logits
  // Triggers its dependents after its own PDL wait. The next launch may then read results of launches before this one
  // before it waits.
  int launches_dependents_late;
  // Only after a launch that triggers late, before the PDL wait:
  int reads_before_wait;   // MoE gate/up reads its input row; MoE down reads the router's partial logits
  int routes_before_wait;  // MoE gate/up reads the router's partial logits
  int has_split_k_input;   // split-K parts have their own input row: GemvParams::split_k_x
  int n_panels;            // per selected expert
};
ZINC_HOST_DEVICE int segment_count(int n_in) { return (n_in + kSegmentElems - 1) / kSegmentElems; }
ZINC_HOST_DEVICE int last_segment_groups(int n_in) {
  return (n_in - (segment_count(n_in) - 1) * kSegmentElems + kGroupElems - 1) / kGroupElems;
}
ZINC_HOST_DEVICE int matrices_per_output(const GemvShape& s) {
  if (s.act != kNoAct) return 2;
  return s.n_combined > 0 ? s.n_combined + (s.has_second_matrix ? 1 : 0) : 1;
}
ZINC_HOST_DEVICE int tiles_per_panel(const GemvShape& s) { return matrices_per_output(s) * segment_count(s.n_in); }
ZINC_HOST_DEVICE int max_block_tiles(const GemvShape& s) {
  return (tiles_per_panel(s) + s.cluster_size - 1) / s.cluster_size;
}
// Upper bound of a block's input segments: one more if it shares its first and last with another block.
ZINC_HOST_DEVICE int max_block_segments(const GemvShape& s) {
  const int n = s.act != kNoAct ? 2 : 1;  // tiles per input segment
  return s.cluster_size == 1 ? tiles_per_panel(s) / n : max_block_tiles(s) / n + (n > 1 ? 1 : 0);
}
// An input segment in shared memory: Q8Segment, or floats.
ZINC_HOST_DEVICE int input_segment_bytes(bool is_float) {
  return is_float ? 4 * kSegmentElems : kSegmentElems + 8 * kSegmentGroups;
}
ZINC_HOST_DEVICE int gemv_threads(const GemvShape& s) { return 64 * s.n_warp_pairs; }
ZINC_HOST_DEVICE int panel_segment_bytes(int header_bytes, int group_bytes) {
  return kPanelRows * (header_bytes + kSegmentGroups * group_bytes);
}
// A multiple of the warp pairs if each gets at least two, else all that fit.
ZINC_HOST_DEVICE int pipeline_stages(const GemvShape& s, int segment_bytes) {
  const int fit = s.pipeline_bytes / segment_bytes, n = fit < kMaxStages ? fit : kMaxStages;
  return n < s.n_warp_pairs ? s.n_warp_pairs : n < 2 * s.n_warp_pairs ? n : n / s.n_warp_pairs * s.n_warp_pairs;
}
// Panels reduced together: all of a block's if each row has a thread and the partial sums need at most max_floats
// floats of shared memory; else as many as that allows, at least one.
ZINC_HOST_DEVICE int panels_per_batch(const GemvShape& s) {
  // Without a cluster the partial sums may be double-buffered; with one they do not overlay the norm weights.
  const int max_floats = s.cluster_size > 1 && !(is_normed(s.input) && s.n_in > 8192) ? 8192 : 4096;
  const int rows = kPanelRows / s.cluster_size;  // of a panel, in one block
  const int by_threads = 64 * s.n_warp_pairs / rows, by_floats = max_floats / (tiles_per_panel(s) * rows);
  const int limit = by_threads < by_floats ? by_threads : by_floats;
  return s.max_panels <= limit || s.max_panels == 1 ? s.max_panels : limit < 1 ? 1 : limit;
}
// Of a normed row: one sum per segment, padded.
ZINC_HOST_DEVICE int sums_of_squares_floats(const GemvShape& s) { return (segment_count(s.n_in) + 3) / 4 * 4; }
// Byte offsets in shared memory; the mbarriers come first.
struct GemvSmem {
  int sums_of_squares, norm_weight, x, pipeline;
};
// The partial sums reuse the memory of the norm's weights, which are not read any more when the sums are written. In a
// cluster they have memory of their own: sums of another block may arrive while this one still reads the weights.
ZINC_HOST_DEVICE GemvSmem gemv_smem(const GemvShape& s) {
  const int norm = is_normed(s.input) ? s.n_in : 0, sums = s.partial_floats;
  GemvSmem smem{};
  smem.sums_of_squares = align_128(8 * (2 * kMaxStages + 1));
  smem.norm_weight = smem.sums_of_squares + (norm > 0 ? align_128(4 * 2 * sums_of_squares_floats(s)) : 0);
  smem.x = smem.norm_weight + align_128(4 * (s.cluster_size > 1 ? norm + sums : norm > sums ? norm : sums));
  smem.pipeline = smem.x + align_128(s.x_bytes);
  return smem;
}

// One matrix, or a GLU's gate and up, in a launch of gemv.cu.
struct GemvPart {
  const unsigned char* bytes;
  // Of the same shape as `bytes`: a GLU's up projection, or the shared expert's down projection; null: none.
  const unsigned char* second_matrix;
  float* out;
  const float* bias;
  const float* up_bias;
  const float* expert_scale;
  const float* up_scale;
  const float* residual;  // added to the output; null: none
  long long matrix_bytes;
  int n_out, n_panels;
};
// Consecutive parts of one format; first_block is its first block of the grid. A split-K problem stores its partial
// sums, [n_segments][n_out], without reducing them: its weights are floats, and its n_panels counts segments of panels.
struct GemvProblem {
  int format;  // index in the program's Formats
  int is_split_k;
  int first_part, first_block, n_panels;
  int panels_per_cluster, n_extra;  // per cluster, or per block if split-K; the first n_extra have one more
};

// One activation row times up to kMaxGemvParts matrices of equal width. With n_combined an output is the weighted sum
// of that many experts, with an input row each, and of a shared expert.
struct GemvParams {
  GemvPart parts[kMaxGemvParts];
  GemvProblem problems[kMaxGemvParts];
  GemvInput input;
  GemvRouting route;
  const int* expert_ids;        // [n_experts_used] or [n_combined]
  const float* expert_weights;  // [n_combined]
  const float* shared_gate;     // [n_shared_gate_splits]: their sum gates the shared expert
  const float* split_k_x;       // input row of split-K problems, if has_split_k_input
  int n_parts, n_problems;
};

}  // namespace zinc::simt
