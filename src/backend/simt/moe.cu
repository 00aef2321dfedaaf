// Which experts a token uses and how their outputs are mixed.
#include "backend/simt/routing.h"

namespace zinc::simt {

// One warp per token, one block per warp.
ZINC_KERNEL moe_route(RouteParams p) {
  __shared__ float logits[kMaxExperts], weights[kMaxExperts];
  __shared__ int ids[kMaxExperts];
  let_next_start();
  wait_for_previous();
  const int t = static_cast<int>(blockIdx.x), lane = lane_id();
  if (t >= *p.n_rows || warp_id() > 0) return;
  for (int e = lane; e < p.n_experts; e += 32) logits[e] = p.logits[static_cast<long long>(t) * p.n_experts + e];
  __syncwarp();
  route(logits, p.n_experts, p.n_used, p.mode, p.scale, ids, weights);
  for (int u = lane; u < p.n_used; u += 32) {
    p.ids[t * p.n_used + u] = ids[u];
    p.weights[t * p.n_used + u] = weights[u];
  }
}

// Brings the pairs of each expert together; one block. In which order they stand does not matter: each is multiplied
// alone.
ZINC_KERNEL group_pairs(GroupPairsParams p) {
  __shared__ int places[kMaxExperts];  // counts, then where the next pair goes
  let_next_start();
  wait_for_previous();
  const int n_pairs = *p.n_rows * p.n_used, thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < p.n_experts; e += kThreads) places[e] = 0;
  __syncthreads();
  for (int i = thread; i < n_pairs; i += kThreads) atomicAdd(&places[p.ids[i]], 1);
  __syncthreads();
  if (thread == 0) {
    int begin = 0, n_tiles = 0;
    for (int e = 0; e < p.n_experts; ++e) {
      const int n = places[e];
      for (int k = 0; k < n; k += p.tile_columns, ++n_tiles) {
        p.out.tiles[3 * n_tiles] = e;
        p.out.tiles[3 * n_tiles + 1] = begin + k;
        p.out.tiles[3 * n_tiles + 2] = min(p.tile_columns, n - k);
      }
      places[e] = begin;
      begin += n;
    }
    *p.out.n_tiles = n_tiles;
  }
  __syncthreads();
  for (int i = thread; i < n_pairs; i += kThreads) p.out.order[atomicAdd(&places[p.ids[i]], 1)] = i;
}

ZINC_KERNEL moe_combine(CombineParams p) {
  let_next_start();
  wait_for_previous();
  const long long index = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  const long long t = index / p.dim;
  const int i = static_cast<int>(index % p.dim);
  if (t >= *p.n_rows) return;
  float sum = 0;
  for (int u = 0; u < p.n_used; ++u) {
    sum = fmaf(p.x[(t * p.n_used + u) * p.dim + i], p.weights[t * p.n_used + u], sum);
  }
  p.out[index] = sum;
}

}  // namespace zinc::simt
