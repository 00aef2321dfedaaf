// Parameters of moe_route.comp, sort_by_expert.comp and moe_combine.comp. Declared once: host C++, and GLSL by
// tools/shaders.
#pragma once

#include "backend/vulkan/params/step.h"

namespace zinc::vulkan {

inline constexpr int kMaxExpertsUsed = 64;  // selected experts per token

// The selection of experts from the router's logits.
struct Route {
  uint64_t logits, ids, weights;
  int n_experts, n_experts_used, mode;  // mode: RouterWeights
  float scale;
};

namespace shader {

struct RouteParams {
  CounterSync sync;
  Route route;
  int n_rows;
};

struct SortByExpertParams {
  CounterSync sync;
  uint64_t ids, sorted_pairs, tiles, n_tiles;
  int n_rows, n_experts_used, n_experts, tile_rows;
};

struct CombineParams {
  CounterSync sync;
  uint64_t x, weights, residual, out;
  int n_rows, n_experts_used, dim;
};

}  // namespace shader
}  // namespace zinc::vulkan
