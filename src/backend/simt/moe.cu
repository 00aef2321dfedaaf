// Routing of tokens to experts, with the sorting of token-expert pairs by expert. A program of this file begins with
// kShape, a RouteShape.
#include "backend/simt/routing.h"

namespace zinc::simt {

constexpr int kExperts = kShape.n_experts, kUsed = kShape.n_experts_used;
constexpr int kThreadExperts = (kExperts + kThreads - 1) / kThreads;  // of a thread, consecutive

// An expert's pairs and tiles, or those of all experts before it.
struct ExpertCounts {
  int n_pairs, n_tiles;
  ZINC_DEVICE void add(const ExpertCounts& other) {
    n_pairs += other.n_pairs;
    n_tiles += other.n_tiles;
  }
};

// The counts of all threads before this one; `total`: of all. All threads call.
ZINC_DEVICE ExpertCounts exclusive_sum(const ExpertCounts& own, ExpertCounts& total) {
  __shared__ ExpertCounts of_warps[kWarps];
  ExpertCounts inclusive = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const ExpertCounts before = {__shfl_up_sync(0xFFFFFFFFu, inclusive.n_pairs, step),
                                 __shfl_up_sync(0xFFFFFFFFu, inclusive.n_tiles, step)};
    if (lane_id() >= step) inclusive.add(before);
  }
  if (lane_id() == 31) of_warps[warp_id()] = inclusive;
  __syncthreads();
  ExpertCounts sum = {inclusive.n_pairs - own.n_pairs, inclusive.n_tiles - own.n_tiles};
  total = {0, 0};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp_id()) sum.add(of_warps[w]);
    total.add(of_warps[w]);
  }
  return sum;
}

constexpr int kHeld = 8;  // ids that a thread keeps; it loads later ones twice

// f(pair, expert) for the thread's pairs.
template <class F>
ZINC_DEVICE void for_each_pair(const RouteParams& p, int n_pairs, const int (&held)[kHeld], const F& f) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    if (thread + k * kThreads < n_pairs) f(thread + k * kThreads, held[k]);
  }
  for (int i = thread + kHeld * kThreads; i < n_pairs; i += kThreads) f(i, __ldcg(p.ids + i));
}

// Sorts token-expert pairs by expert; one block. The order within an expert does not matter: each pair is computed
// independently.
ZINC_DEVICE void sort_by_expert(const RouteParams& p, int n_pairs) {
  __shared__ int next[kThreadExperts * kThreads];  // per expert: the number of its pairs, then the index of the next one
  const int thread = static_cast<int>(threadIdx.x), first = thread * kThreadExperts;
  int held[kHeld];
#pragma unroll
  for (int k = 0; k < kHeld; ++k) held[k] = thread + k * kThreads < n_pairs ? __ldcg(p.ids + thread + k * kThreads) : 0;
#pragma unroll
  for (int k = 0; k < kThreadExperts; ++k) next[k * kThreads + thread] = 0;
  __syncthreads();
  for_each_pair(p, n_pairs, held, [&](int, int expert) { atomicAdd(&next[expert], 1); });
  __syncthreads();
  int n[kThreadExperts];
  ExpertCounts own = {0, 0}, total;
#pragma unroll
  for (int k = 0; k < kThreadExperts; ++k) {
    n[k] = next[first + k];
    own.add({n[k], (n[k] + p.tile_tokens - 1) / p.tile_tokens});
  }
  ExpertCounts before = exclusive_sum(own, total);
#pragma unroll
  for (int k = 0; k < kThreadExperts; ++k) {
    next[first + k] = before.n_pairs;
    for (int done = 0; done < n[k]; done += p.tile_tokens, ++before.n_tiles) {
      int* tile = p.tiles.tiles + 3 * before.n_tiles;
      tile[0] = first + k;
      tile[1] = before.n_pairs + done;
      tile[2] = min(p.tile_tokens, n[k] - done);
    }
    before.n_pairs += n[k];
  }
  if (thread == 0) *p.tiles.n_tiles = total.n_tiles;
  __syncthreads();
  for_each_pair(p, n_pairs, held, [&](int pair, int expert) { p.tiles.order[atomicAdd(&next[expert], 1)] = pair; });
}

// One warp per token; the last block that finishes sorts.
ZINC_KERNEL_2_PER_SM moe_route(RouteParams p) {
  __shared__ float all_logits[kWarps][kExperts];
  launch_dependents();
  const int t = static_cast<int>(blockIdx.x) * kWarps + warp_id(), lane = lane_id(), n_rows = step_count(p.n_rows);
  wait_dependency();
  if (t < n_rows) {
    float* logits = all_logits[warp_id()];
#pragma unroll
    for (int e = lane; e < kExperts; e += 32) logits[e] = p.logits[static_cast<long long>(t) * kExperts + e];
    int id;
    float logit;
    top_k_experts<kExperts, kUsed>(logits, id, logit);
    const float weight =
        expert_weight<kExperts, kUsed>(logits, logit, kShape.router_normalization, p.routed_scaling_factor);
    if (lane < kUsed) {
      p.ids[t * kUsed + lane] = id;
      p.weights[t * kUsed + lane] = weight;
    }
  }
  if (p.tile_tokens == 0) return;
  if (gridDim.x == 1) {
    __syncthreads();
  } else if (!is_last_block(p.n_blocks_done, static_cast<int>(gridDim.x))) {
    return;
  }
  sort_by_expert(p, n_rows * kUsed);
}

}  // namespace zinc::simt
