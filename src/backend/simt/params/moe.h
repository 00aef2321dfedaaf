// Parameters of moe.cu.
#pragma once

#include "backend/simt/params/matmul.h"

namespace zinc::simt {

struct RouteParams {
  const float* logits;
  int* ids;
  float* weights;
  const int* n_rows;
  int n_experts, n_experts_used, router_normalization;  // router_normalization: RouterWeights
  float routed_scaling_factor;
};

struct SortByExpertParams {
  const int* ids;  // [rows, n_experts_used]
  const int* n_rows;
  int n_experts_used, n_experts;
  int tile_tokens;  // token-expert pairs per tile, at most
  ExpertTiles out;
};

struct CombineParams {
  const float* x;
  const float* weights;
  float* out;
  const int* n_rows;
  int n_experts_used, dim;
};

}  // namespace zinc::simt
