// Top-k expert selection from the router's logits, the same wherever it runs: first within groups of 32 experts, then among
// the groups' winners. The lower id wins ties; NaN counts as the lowest value.
#include "backend/vulkan/params/moe.h"
layout(constant_id = kSpecRouteCapacity) const int kRouteCapacity = 1;  // capacity in experts, a multiple of 32; 1: no selection in this kernel

shared float route_logits[kRouteCapacity];
shared float candidate_logits[kRouteCapacity];  // per group of 32 experts: its top min(n_experts_used, 32), sorted
shared int candidate_ids[kRouteCapacity];
shared int selected_ids[kMaxExpertsUsed];
shared float selected_logits[kMaxExpertsUsed];

// Rank of an expert within its group of 32.
int rank_in_group(float logit, int index) {
  int rank = 0;
  [[unroll]] for (int j = 0; j < 32; ++j) {
    float other = route_logits[(index & ~31) + j];
    if (other > logit || (other == logit && j < (index & 31))) ++rank;
  }
  return rank;
}

// Sets selected_ids and selected_logits. REQUIRES: every thread of the workgroup calls; n_experts_used <= kMaxExpertsUsed.
void select_experts(Route route, int t) {
  int n_padded = padded(route.n_experts);
  int k_per_group = min(route.n_experts_used, 32);
  int n_candidates = n_padded / 32 * k_per_group;
  for (int e = thread_id(); e < n_padded; e += kThreads) {
    float logit = e < route.n_experts ? CoherentFloats(route.logits).data[t * route.n_experts + e] : kNegInf;
    route_logits[e] = isnan(logit) ? kNegInf : logit;
  }
  if (thread_id() < route.n_experts_used) {  // defaults, if n_experts_used exceeds the number of experts
    selected_ids[thread_id()] = 0;
    selected_logits[thread_id()] = kNegInf;
  }
  barrier();
  for (int e = thread_id(); e < n_padded; e += kThreads) {
    float logit = route_logits[e];
    int rank = rank_in_group(logit, e);
    if (rank >= k_per_group) continue;
    candidate_logits[e / 32 * k_per_group + rank] = logit;
    candidate_ids[e / 32 * k_per_group + rank] = e;
  }
  barrier();
  for (int first = 0; first < n_candidates; first += kThreads / 4) {  // four threads per candidate
    int i = min(first + thread_id() / 4, n_candidates - 1), rank = 0;
    float logit = candidate_logits[i];
    int index = candidate_ids[i];
    for (int j = thread_id() % 4; j < n_candidates; j += 4) {
      float other = candidate_logits[j];
      if (other > logit || (other == logit && candidate_ids[j] < index)) ++rank;
    }
    rank = clustered_sum_int(rank, 4);
    if (thread_id() % 4 != 0 || rank >= route.n_experts_used || index >= route.n_experts) continue;
    selected_ids[rank] = index;
    selected_logits[rank] = logit;
  }
  barrier();
}

// Writes the selection and its weights; with writes == false (warm-up pass) only computes. REQUIRES: every thread of the
// workgroup calls.
void write_route(Route route, int t, bool writes) {
  float max_logit = selected_logits[0], total = 1;
  if (route.mode < kSoftmaxOfSelected) {
    float sum = 0;
    for (int e = thread_id(); e < route.n_experts; e += kThreads) sum += exp(route_logits[e] - max_logit);
    total = workgroup_sum(sum);
  }
  if (thread_id() >= route.n_experts_used) return;
  float own_prob = 0;
  precise float sum = 0;
  for (int u = 0; u < route.n_experts_used; ++u) {
    precise float prob = exp(selected_logits[u] - max_logit) / total;
    sum = sum + prob;
    if (u == thread_id()) own_prob = prob;
  }
  precise float weight = (route.mode == kSoftmaxOverAll ? own_prob : own_prob / sum) * route.scale;
  if (!writes) return;
  CoherentInts(route.ids).data[t * route.n_experts_used + thread_id()] = selected_ids[thread_id()];
  CoherentFloats(route.weights).data[t * route.n_experts_used + thread_id()] = weight;
}
