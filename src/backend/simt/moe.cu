// Which experts a token uses and how their outputs are mixed; the choice of the next token.
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

// The best of one part of a row of logits.
ZINC_KERNEL sample_parts(SampleParams p) {
  __shared__ float values[kWarps];
  __shared__ int places[kWarps];
  let_next_start();
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.x);
  if (row >= p.step.counts[kOutputs]) return;
  const int n = (p.vocab + kSampleSplits - 1) / kSampleSplits, end = min(p.vocab, (part + 1) * n);
  const float* logits = p.logits + static_cast<long long>(row) * p.vocab;
  float best = lowest();
  int place = kNowhere;
  for (int i = part * n + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
    if (logits[i] > best || place == kNowhere) {
      best = logits[i];
      place = i;
    }
  }
  lanes_best(best, place);
  if (lane_id() == 0) {
    values[warp_id()] = best;
    places[warp_id()] = place;
  }
  __syncthreads();
  if (warp_id() > 0) return;
  best = lane_id() < kWarps ? values[lane_id()] : lowest();
  place = lane_id() < kWarps ? places[lane_id()] : kNowhere;
  lanes_best(best, place);
  if (lane_id() == 0) {
    p.best[row * kSampleSplits + part] = best;
    p.best_id[row * kSampleSplits + part] = place;
  }
}

// The best of the parts; the last row of a sequence leaves its token in the sequence's slot.
ZINC_KERNEL sample_rows(SampleParams p) {
  let_next_start();
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.x), n_rows = p.step.counts[kOutputs];
  if (row >= n_rows || warp_id() > 0) return;
  float best = p.best[row * kSampleSplits + lane_id()];
  int place = p.best_id[row * kSampleSplits + lane_id()];
  lanes_best(best, place);
  if (lane_id() != 0) return;
  if (place >= p.vocab) place = 0;
  p.sampled[row] = place;
  const int seq = p.step.seq_of_token[p.step.output_rows[row]];
  if (row + 1 == n_rows || p.step.seq_of_token[p.step.output_rows[row + 1]] != seq) {
    p.step.last_sampled[p.step.slots[seq]] = place;
  }
}

}  // namespace zinc::simt
