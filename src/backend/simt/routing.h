// Which experts a token uses, from its logits: the same wherever it is done.
#pragma once

#include "backend/simt/dialect.h"

namespace zinc::simt {

// The larger value, the lower place among equals, over all lanes.
ZINC_DEVICE void lanes_best(float& value, int& place) {
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, value, step);
    const int other_place = __shfl_xor_sync(0xFFFFFFFFu, place, step);
    if (other > value || (other == value && other_place < place)) {
      value = other;
      place = other_place;
    }
  }
}

constexpr int kNowhere = 0x7FFFFFFF;
ZINC_DEVICE float lowest() { return __int_as_float(0xFF800000); }

// The best of a lane's logits that are left.
ZINC_DEVICE void lane_best(const float* logits, int n_experts, float& best, int& place) {
  best = lowest();
  place = kNowhere;
  for (int e = lane_id(); e < n_experts; e += 32) {
    const float value = logits[e];
    if (!isnan(value) && (place == kNowhere || value > best)) {
      best = value;
      place = e;
    }
  }
}

// One warp: the n_used best of the logits, which it spoils, one after the other, and their weights. All of it lies in
// shared memory.
ZINC_DEVICE void route(float* logits, int n_experts, int n_used, int mode, float scale, int* ids, float* weights) {
  const int lane = lane_id();
  float largest = lowest(), total = 0;
  for (int e = lane; e < n_experts; e += 32) largest = fmaxf(largest, logits[e]);
  largest = lanes_max(largest, 32);
  for (int e = lane; e < n_experts; e += 32) total += expf(logits[e] - largest);
  total = lanes_sum(total, 32);
  float own;
  int own_place;
  lane_best(logits, n_experts, own, own_place);
  for (int u = 0; u < n_used; ++u) {
    float best = own;
    int place = own_place;
    lanes_best(best, place);
    if (place == own_place && place != kNowhere) {
      logits[place] = __int_as_float(0x7FC00000);  // not a number: never larger
      lane_best(logits, n_experts, own, own_place);
    }
    if (lane == 0) {
      ids[u] = place == kNowhere ? 0 : place;
      weights[u] = best;
    }
  }
  __syncwarp();
  float sum = 0;
  if (lane == 0) {
    for (int u = 0; u < n_used; ++u) {
      weights[u] = expf(weights[u] - largest);  // the largest of all is among the chosen
      if (mode < 2) weights[u] /= total;
      sum += weights[u];
    }
    for (int u = 0; u < n_used; ++u) weights[u] = (mode == 0 ? weights[u] : weights[u] / sum) * scale;
  }
  __syncwarp();
}

}  // namespace zinc::simt
