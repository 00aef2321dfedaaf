// Which experts a token uses and their weights. One workgroup per token: the n_used best, one after the other.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "best.glsl"

const int kMaxExperts = 1024;
struct Params {
  uint64_t logits, ids, weights;
  int n_rows, n_experts, n_used, mode;  // 0 softmax, 1 normalised, 2 of the chosen
  float scale;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

shared float chosen[kMaxExperts];

void main() {
  int t = int(gl_WorkGroupID.x);
  if (t >= rows_of(p.n_rows)) return;
  float own[kMaxExperts / kThreads];
  bool is_taken[kMaxExperts / kThreads];
  float largest = 0, total = 0;
  for (int i = 0; i < kMaxExperts / kThreads; ++i) {
    int e = i * kThreads + thread_id();
    own[i] = e < p.n_experts ? Floats(p.logits).at[t * p.n_experts + e] : 0.0;
    is_taken[i] = e >= p.n_experts || isnan(own[i]);
  }
  for (int u = 0; u < p.n_used; ++u) {
    float best = 0;
    int place = kNowhere;
    for (int i = 0; i < kMaxExperts / kThreads; ++i) {
      if (!is_taken[i] && (place == kNowhere || own[i] > best)) {
        best = own[i];
        place = i * kThreads + thread_id();
      }
    }
    block_best(best, place);
    if (place == kNowhere) place = 0;
    if (place % kThreads == thread_id()) is_taken[place / kThreads] = true;
    if (u == 0) largest = best;
    if (thread_id() == 0) {
      Ints(p.ids).at[t * p.n_used + u] = place;
      chosen[u] = exp(best - largest);
    }
  }
  if (p.mode < 2) {
    float sum = 0;
    for (int i = 0; i < kMaxExperts / kThreads; ++i) {
      if (i * kThreads + thread_id() < p.n_experts) sum += exp(own[i] - largest);
    }
    total = block_sum(sum);
  }
  if (thread_id() != 0) return;
  precise float sum = 0;
  for (int u = 0; u < p.n_used; ++u) {
    if (p.mode < 2) chosen[u] = chosen[u] / total;
    sum = sum + chosen[u];
  }
  for (int u = 0; u < p.n_used; ++u) {
    precise float weight = (p.mode == 0 ? chosen[u] : chosen[u] / sum) * p.scale;
    Floats(p.weights).at[t * p.n_used + u] = weight;
  }
}
