// Parameters of the gemv kernels, the matmuls of one row: gemv.cu, gemv_experts.cu and gemv_moe_down.cu. A program is
// compiled for its geometry (GemvShape), for how it overlaps with other launches (GemvPdl), and with policies, which
// are types; a policy's parameters are its own struct.
#pragma once

#include "backend/simt/params/step.h"

namespace zinc::simt {

inline constexpr int kMaxGemvParts = 4;     // matrices per launch of gemv.cu
inline constexpr int kMaxExpertsUsed = 32;  // experts per token that the kernels can route and combine
inline constexpr int kMaxWarpPairs = 8;     // warp pairs per block
inline constexpr int kMaxStages = 32;       // pipeline stages: one lane of a warp issues each copy

// ---- policies, types of gemv_prologue.h, gemv_epilogue.h, gemv_routing.h and the kernels' files ----

struct PlainPrologue;
struct QuantizedPrologue;
struct NormPrologue;
struct NormResidualPrologue;
template <int head_dim, int act>
struct GatedHeadsPrologue;
struct PlainEpilogue;
struct ResidualEpilogue;
template <int act>
struct GluEpilogue;
template <int n_experts, int n_used, int router_normalization, int n_router_splits>
struct TopKRouter;
template <int n_experts, int n_used, int router_normalization, int n_router_splits>
struct StoringTopKRouter;
template <int n_used>
struct SelectedExperts;
template <int n_used>
struct WeightedExperts;
template <int n_gate_splits>
struct GatedSharedDown;
struct NoSharedDown;

// ---- geometry ----

// How a launch is split into blocks, warps and work tiles, and its shared memory. Host and kernel use the same
// functions.
struct GemvShape {
  int n_in;
  int n_matrices;    // added up to or gated into an output: a GLU's gate and up, or the experts of MoE down; else 1
  int n_input_rows;  // MoE down: one per matrix; else 1
  int is_normed;     // the prologue norms the whole row
  int n_parts;
  int expert_panels;  // gemv_experts.cu: of one expert
  int n_warp_pairs;
  int cluster_size;             // blocks per cluster; they split the K segments of their panels
  int max_panels;               // per cluster
  int x_bytes, partial_floats;  // shared memory of the input rows, and of partial sums
  int pipeline_bytes;           // shared memory of the weight pipeline, at most
  int has_bulk_copies;          // else each warp pair fills its own stages with cp.async
  int batch_floats;             // partial sums of panels that are reduced together, at most
  int n_split_k_warps;          // warps of a split-K block, one segment each
};
ZINC_HOST_DEVICE int segment_count(int n_in) { return (n_in + kSegmentElems - 1) / kSegmentElems; }
ZINC_HOST_DEVICE int last_segment_groups(int n_in) {
  return (n_in - (segment_count(n_in) - 1) * kSegmentElems + kGroupElems - 1) / kGroupElems;
}
ZINC_HOST_DEVICE int tiles_per_panel(const GemvShape& s) { return s.n_matrices * segment_count(s.n_in); }
// A GLU's gate and up read the same input segment.
ZINC_HOST_DEVICE int tiles_per_input_segment(const GemvShape& s) { return s.n_matrices / s.n_input_rows; }
ZINC_HOST_DEVICE int max_block_tiles(const GemvShape& s) {
  return (tiles_per_panel(s) + s.cluster_size - 1) / s.cluster_size;
}
// Upper bound of a block's input segments: one more if it shares its first and last with another block.
ZINC_HOST_DEVICE int max_block_segments(const GemvShape& s) {
  const int n = tiles_per_input_segment(s);
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
// A multiple of the warp pairs if each gets at least two or has its own stages, else all that fit.
ZINC_HOST_DEVICE int pipeline_stages(const GemvShape& s, int segment_bytes) {
  const int fit = s.pipeline_bytes / segment_bytes, n = fit < kMaxStages ? fit : kMaxStages;
  if (n < s.n_warp_pairs) return s.n_warp_pairs;
  return s.has_bulk_copies != 0 && n < 2 * s.n_warp_pairs ? n : n / s.n_warp_pairs * s.n_warp_pairs;
}
// Panels reduced together: all of a block's if each row has a thread and the partial sums fit; else as many as that
// allows, at least one.
ZINC_HOST_DEVICE int panels_per_batch(const GemvShape& s) {
  // Without a cluster the partial sums may be double-buffered; with one they do not overlay the norm weights.
  const int max_floats = (s.cluster_size > 1 && !(s.is_normed && s.n_in > 8192) ? 2 : 1) * s.batch_floats;
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
  const int norm = s.is_normed ? s.n_in : 0, sums = s.partial_floats;
  GemvSmem smem{};
  smem.sums_of_squares = align_128(8 * (2 * kMaxStages + 1));
  smem.norm_weight = smem.sums_of_squares + (norm > 0 ? align_128(4 * 2 * sums_of_squares_floats(s)) : 0);
  smem.x = smem.norm_weight + align_128(4 * (s.cluster_size > 1 ? norm + sums : norm > sums ? norm : sums));
  smem.pipeline = smem.x + align_128(s.x_bytes);
  return smem;
}

// ---- dependent launch ----

// Only a launch after one that triggers late may read before its PDL wait: the results of all launches before that one.
struct GemvPdl {
  int triggers_late = 0;          // its dependents start after its own wait
  int routes_before_wait = 0;     // reads the router's partial logits
  int reads_row_before_wait = 0;  // gemv_experts.cu: reads its input row
};

// ---- prologues ----

struct NoInput {};
struct PlainInput {
  const float* x;
};
struct QuantizedInput {
  Q8Activation q8;
};
struct NormInput {
  const float* x;
  const float* norm_weight;  // null: ones
  float norm_eps;
};
// A norm per head, then the output gate.
struct GatedHeadsInput {
  NormInput heads;
  const float* gate;
};
// The row is (residual + post_norm(x)) * scale, and is stored to residual_out for later launches; then it is normed.
struct NormResidualInput {
  NormInput row;
  const float* post_norm_weight;  // null: ones
  const float* residual;
  const float* scale;  // null: one
  float* residual_out;
  float post_norm_eps;
};

// ---- matrices and epilogues ----

struct DenseMatrix {
  const unsigned char* bytes;
  const float* bias;  // null: none
};
struct ExpertMatrix {  // of all experts
  const unsigned char* bytes;
  const float* bias;   // [n_experts, n_out]; null: none
  const float* scale;  // [n_experts]; null: none
};
template <class M>
struct PlainPart {
  M matrix;
  float* out;
  int n_out, n_panels;
};
template <class M>
struct ResidualPart {
  M matrix;
  float* out;
  int n_out, n_panels;
  const float* residual;  // added to the output
};
template <class M>
struct GluPart {
  M matrix;  // the gate
  float* out;
  int n_out, n_panels;
  M up;
};

// ---- experts ----

// Split-K partial sums of the router's logits, from which a launch routes its token itself.
struct RouterLogits {
  const float* partial;  // [n_segments][n_experts]
  const float* bias;     // null: none
  float routed_scaling_factor;
};
struct StoredRouting {
  RouterLogits logits;
  int* ids;        // [n_experts_used], stored for later launches
  float* weights;  // likewise
};
struct ExpertIds {
  const int* ids;  // [n_experts_used]
};
struct WeightedExpertIds {
  const int* ids;        // [n_experts_used]
  const float* weights;  // [n_experts_used]
};
struct SharedExpert {
  const unsigned char* bytes;  // its down projection, of the same format and shape as an expert's
  const float* x;              // its input row
  const float* gate;           // [n_gate_splits]: their sum gates it
};

// ---- kernels ----

// A cluster has panels_per_cluster panels, the first n_extra one more; of a split-K problem a block.
struct PanelSplit {
  int panels_per_cluster, n_extra;
};
// Consecutive parts of one format; first_block is its first block of the grid. A split-K problem stores its partial
// sums, [n_segments][n_out], without reducing them: its weights are floats, and its panels are segments of panels.
struct GemvProblem {
  int format;  // index in the program's Formats
  int is_split_k;
  int first_part, first_block;
  PanelSplit split;
};

// One activation row times up to kMaxGemvParts matrices of equal width.
template <class Part, class Input, class SplitKInput>
struct GemvParams {
  Part parts[kMaxGemvParts];
  GemvProblem problems[kMaxGemvParts];
  int n_problems;
  Input input;
  SplitKInput split_k_input;
};

// One activation row times the matrices of the selected experts.
template <class Part, class Input, class Experts>
struct GemvExpertsParams {
  Part part;
  PanelSplit split;
  long long matrix_bytes;
  Input input;
  Experts experts;
};

// The weighted sum of the selected experts' down projections, with an input row each, and of a shared expert.
template <class Input, class Experts, class Shared>
struct GemvMoeDownParams {
  ExpertMatrix matrix;
  float* out;
  const float* residual;  // added to the output; null: none
  int n_out;
  PanelSplit split;
  long long matrix_bytes;
  Input input;  // [n_experts_used, n_in]
  Experts experts;
  Shared shared_expert;
};

}  // namespace zinc::simt
