// The experts of the block's token, in the gemv kernels of MoE: routed from the router's partial logits, or already
// selected. REQUIRES: kShape.
#pragma once

#include "backend/simt/gemv_tiles.h"
#include "backend/simt/routing.h"

namespace zinc::simt {

// In shared memory.
struct RoutedExperts {
  int ids[kMaxExpertsUsed];
  float weights[kMaxExpertsUsed];
};

// ---- policies: select() by all threads; store() for later launches, after the PDL wait ----

// Every block computes the routing redundantly. The weights are visible after the next barrier of the gemv warps.
template <int n_experts, int n_used, int router_normalization, int n_router_splits>
struct TopKRouter {
  using Params = RouterLogits;
  static constexpr int kUsed = n_used;

  static ZINC_DEVICE void select(const Params& p, RoutedExperts& routed) {
    __shared__ float logits[n_experts];
    const float* partial = p.partial + block_token() * (n_router_splits * n_experts);
    for (int e = static_cast<int>(threadIdx.x); e < n_experts; e += static_cast<int>(blockDim.x)) {
      float sum = 0;
#pragma unroll
      for (int s = 0; s < n_router_splits; ++s) sum += __ldcg(partial + s * n_experts + e);
      logits[e] = p.bias ? sum + p.bias[e] : sum;
    }
    __syncthreads();
    const bool is_router_warp = warp_id() == 0;  // another warp starts the pipeline
    int id = 0;
    float logit = 0;
    if (is_router_warp) {
      top_k_experts<n_experts, n_used>(logits, id, logit);
      if (lane_id() < n_used) routed.ids[lane_id()] = id;
    }
    __syncthreads();
    if (!is_router_warp) return;
    const float weight = expert_weight<n_experts, n_used>(logits, logit, router_normalization, p.routed_scaling_factor);
    if (lane_id() >= n_used) return;
    routed.weights[lane_id()] = weight;
  }
};

// Also stores the routing, by the threads that wrote `routed`. After the wait, because the previous launch may still
// read the old ids.
template <int n_experts, int n_used, int router_normalization, int n_router_splits>
struct StoringTopKRouter : TopKRouter<n_experts, n_used, router_normalization, n_router_splits> {
  using Params = StoredRouting;
  using Router = TopKRouter<n_experts, n_used, router_normalization, n_router_splits>;

  static ZINC_DEVICE void select(const Params& p, RoutedExperts& routed) { Router::select(p.logits, routed); }
  static ZINC_DEVICE void store(const Params& p, const RoutedExperts& routed) {
    const int i = static_cast<int>(threadIdx.x);
    if (block_of_token() > 0 || i >= n_used) return;
    p.ids[block_token() * n_used + i] = routed.ids[i];
    p.weights[block_token() * n_used + i] = routed.weights[i];
  }
};

// Selected by an earlier launch.
template <int n_used>
struct SelectedExperts {
  using Params = ExpertIds;
  static constexpr int kUsed = n_used;

  static ZINC_DEVICE void select(const Params& p, RoutedExperts& routed) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < n_used) routed.ids[i] = p.ids[block_token() * n_used + i];
    __syncthreads();
  }
  static ZINC_DEVICE void store(const Params&, const RoutedExperts&) {}
};
template <int n_used>
struct WeightedExperts {
  using Params = WeightedExpertIds;
  static constexpr int kUsed = n_used;

  static ZINC_DEVICE void select(const Params& p, RoutedExperts& routed) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < n_used) {
      routed.ids[i] = p.ids[block_token() * n_used + i];
      routed.weights[i] = p.weights[block_token() * n_used + i];
    }
    __syncthreads();
  }
};

}  // namespace zinc::simt
