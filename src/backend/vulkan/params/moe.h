// Parameters of moe_route.comp. Declared once: host C++, and GLSL by tools/shaders.
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

// (row, expert) pairs sorted by expert, and their tiles: expert, first pair and number of pairs.
struct ExpertTileParams {
  uint64_t sorted_pairs, tiles, n_tiles;
  int tile_rows;  // 0: each pair is a tile of its own
  int unused;
};

namespace shader {

struct RouteParams {
  CounterSync sync;
  Route route;
  ExpertTileParams tiles;
  uint64_t n_done;  // workgroups that have finished; zero between steps
  int n_rows;
};

}  // namespace shader
}  // namespace zinc::vulkan
