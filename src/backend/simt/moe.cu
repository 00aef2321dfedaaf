// MoE routing, sorting of token-expert pairs by expert, and the weighted sum of expert outputs.
#include "backend/simt/routing.h"

namespace zinc::simt {

// One block per token; only its first warp works.
ZINC_KERNEL moe_route(RouteParams p) {
  __shared__ float logits[kMaxExperts], weights[kMaxExperts];
  __shared__ int ids[kMaxExperts];
  launch_dependents();
  wait_dependency();
  const int t = static_cast<int>(blockIdx.x), lane = lane_id();
  if (t >= *p.n_rows || warp_id() > 0) return;
  for (int e = lane; e < p.n_experts; e += 32) logits[e] = p.logits[static_cast<long long>(t) * p.n_experts + e];
  __syncwarp();
  route(logits, p.n_experts, p.n_experts_used, p.router_normalization, p.routed_scaling_factor, ids, weights);
  for (int u = lane; u < p.n_experts_used; u += 32) {
    p.ids[t * p.n_experts_used + u] = ids[u];
    p.weights[t * p.n_experts_used + u] = weights[u];
  }
}

// Sorts token-expert pairs by expert; one block. The order within an expert does not matter: each pair is computed
// independently.
ZINC_KERNEL moe_sort_by_expert(SortByExpertParams p) {
  __shared__ int offsets[kMaxExperts];  // counts, then the index of the next pair
  launch_dependents();
  wait_dependency();
  const int n_pairs = *p.n_rows * p.n_experts_used, thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < p.n_experts; e += kThreads) offsets[e] = 0;
  __syncthreads();
  for (int i = thread; i < n_pairs; i += kThreads) atomicAdd(&offsets[p.ids[i]], 1);
  __syncthreads();
  if (thread == 0) {
    int begin = 0, n_tiles = 0;
    for (int e = 0; e < p.n_experts; ++e) {
      const int n = offsets[e];
      for (int k = 0; k < n; k += p.tile_tokens, ++n_tiles) {
        p.out.tiles[3 * n_tiles] = e;
        p.out.tiles[3 * n_tiles + 1] = begin + k;
        p.out.tiles[3 * n_tiles + 2] = min(p.tile_tokens, n - k);
      }
      offsets[e] = begin;
      begin += n;
    }
    *p.out.n_tiles = n_tiles;
  }
  __syncthreads();
  for (int i = thread; i < n_pairs; i += kThreads) p.out.order[atomicAdd(&offsets[p.ids[i]], 1)] = i;
}

ZINC_KERNEL moe_combine(CombineParams p) {
  launch_dependents();
  wait_dependency();
  const long long index = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  const long long t = index / p.dim;
  const int i = static_cast<int>(index % p.dim);
  if (t >= *p.n_rows) return;
  float sum = 0;
  for (int u = 0; u < p.n_experts_used; ++u) {
    sum = fmaf(p.x[(t * p.n_experts_used + u) * p.dim + i], p.weights[t * p.n_experts_used + u], sum);
  }
  p.out[index] = sum;
}

}  // namespace zinc::simt
