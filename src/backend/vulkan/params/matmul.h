// Parameters of linear.comp, gemm*.comp, moe_down.comp and embed.comp. Declared once: host C++, and
// GLSL by tools/shaders.
#pragma once

#include "backend/vulkan/params/moe.h"
#include "backend/vulkan/params/step.h"

namespace zinc::vulkan {

inline constexpr int kMaxParts = 4;            // matrices per matmul dispatch
inline constexpr int kMaxMoeDownExperts = 32;  // selected experts per token that moe_down.comp can combine
inline constexpr int kMaxSplits = 8;
inline constexpr int kGemmFloatsColumns = 4;  // rows of activations per workgroup of gemm_floats.comp

// Whether and how a matmul kernel selects an expert's matrix.
enum ExpertMode : int {
  kDense = 0,
  kPairPerTile = 1,  // each tile is one (row, expert) pair
  kSortedTiles = 2   // (row, expert) pairs sorted by expert (moe_route.comp)
};
enum MatmulInputKind : int { kPlainInput = 0, kNormInput = 1, kGatedNormInput = 2 };

// A matrix, or one per expert, in panels (panel.glsl).
struct Matrix {
  uint64_t bytes, panel_bytes, matrix_bytes;
  int n_in, n_out, n_segments;
  int n_splits;  // K splits with separate partial sums
};

// Activations quantized to int8: rows of `stride` bytes, a scale per `block` elements, and the sum of each 32.
struct Q8Activation {
  uint64_t q, scale, sum;
  int stride;  // a multiple of kSegmentElems
  int block;   // elements per scale; 0: not quantized
};

namespace shader {

struct LinearParams {
  CounterSync sync;
  Matrix parts[kMaxParts];
  uint64_t outs[kMaxParts], biases[kMaxParts], expert_scales[kMaxParts];
  uint64_t residual;  // added to part 0
  uint64_t x, norm_weight;
  Q8Activation q8;
  uint64_t expert_ids, sorted_pairs, tiles, n_tiles;
  float norm_eps;
  int n_rows, n_parts, act;
  int vectors_per_row;               // input rows within each of the n_rows
  int n_experts_used, x_per_expert;  // x_per_expert: each selected expert has its own input row
  int head_dim;                      // of the prologue's gated norm
  uint64_t gate;
  Route route;                                                   // decode: the dispatch also selects the experts
  uint64_t expert_weights, shared_expert_x, shared_expert_gate;  // moe_down.comp only
};

struct EmbedParams {
  Matrix table;
  uint64_t out;
};

}  // namespace shader
}  // namespace zinc::vulkan
