// Parameters of moe.cu and combine.cu.
#pragma once

#include "backend/simt/params/matmul.h"

namespace zinc::simt {

struct RouteShape {
  int n_experts, n_experts_used, router_normalization;  // router_normalization: RouterWeights
};

struct RouteParams {
  const float* logits;
  int* ids;        // [rows, n_experts_used]
  float* weights;  // likewise
  const int* n_rows;
  float routed_scaling_factor;
  int tile_tokens;  // token-expert pairs per tile, at most; 0: they are not sorted
  ExpertTiles tiles;
  int* n_blocks_done;  // zero between launches
};

// out = residual + (sum of weights[u] * x[u] + sigmoid(shared_gate) * shared); then its RMS norm.
struct CombineParams {
  const float* x;        // [rows, n_experts_used, dim]
  const float* weights;  // [rows, n_experts_used]
  const float* shared;   // [rows, dim]; null: none
  const float* shared_gate;
  const float* residual;  // null: none
  float* out;
  const float* norm_weight;  // null: none
  float norm_eps;
  int is_normed;
  float* normed;    // the normed rows; null: only q8
  Q8Activation q8;  // q null: none
  int q8_block;
  const int* n_rows;
  int n_experts_used, dim;
};

}  // namespace zinc::simt
