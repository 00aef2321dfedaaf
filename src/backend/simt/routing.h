// Which experts a token uses, from its logits: the same wherever it is done.
#pragma once

#include "backend/simt/dialect.h"

namespace zinc::simt {

// The larger value, the lower place among equals, over all lanes.
ZINC_DEVICE void lanes_best(float& value, int& place) {
#if __CUDA_ARCH__ >= 800
  // As whole numbers in the order of the values, the two zeros alike.
  const u32 bits = __float_as_uint(value + 0.0f), order = bits >> 31 ? ~bits : bits | 0x80000000u;
  const u32 best = __reduce_max_sync(0xFFFFFFFFu, order);
  place = static_cast<int>(__reduce_min_sync(0xFFFFFFFFu, order == best ? static_cast<u32>(place) : 0x7FFFFFFFu));
  value = __uint_as_float(best >> 31 ? best & 0x7FFFFFFFu : ~best);
#else
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, value, step);
    const int other_place = __shfl_xor_sync(0xFFFFFFFFu, place, step);
    if (other > value || (other == value && other_place < place)) {
      value = other;
      place = other_place;
    }
  }
#endif
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

// Whole numbers in the order of the values, the two zeros alike, and above zero; zero for what is not a number.
ZINC_DEVICE u32 order_of(float value) {
  const u32 bits = __float_as_uint(value + 0.0f);
  return isnan(value) ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
}
ZINC_DEVICE float of_order(u32 order) { return __uint_as_float(order >> 31 ? order & 0x7FFFFFFFu : ~order); }

// The same for numbers of experts that are known (Hopper and newer), with the logits in registers: lane l has those of
// experts l, l + 32 and so on. The chosen are those of the first lanes.
template <int n_experts, int n_used>
ZINC_DEVICE void choose_known(const float* logits, int& id, float& logit) {
  constexpr int kOfLane = (n_experts + 31) / 32;
  u32 own[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int e = lane_id() + 32 * k;
    own[k] = e < n_experts ? order_of(logits[e]) : 0;
  }
  id = 0;
  logit = lowest();
#pragma unroll 1
  for (int u = 0; u < n_used; ++u) {
    u32 best = own[0];
#pragma unroll
    for (int k = 1; k < kOfLane; ++k) best = max(best, own[k]);
    best = __reduce_max_sync(0xFFFFFFFFu, best);
    if (best == 0) break;
    u32 lowest_place = kNowhere;
#pragma unroll
    for (int k = kOfLane - 1; k >= 0; --k) {
      if (own[k] == best) lowest_place = static_cast<u32>(lane_id() + 32 * k);
    }
    const int place = static_cast<int>(__reduce_min_sync(0xFFFFFFFFu, lowest_place));
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      if (place == lane_id() + 32 * k) own[k] = 0;
    }
    if (lane_id() == u) {
      id = place;
      logit = of_order(best);
    }
  }
}

// And their weights, from the logits of the chosen.
template <int n_experts, int n_used>
ZINC_DEVICE float weigh_known(const float* logits, float logit, int mode, float scale) {
  constexpr int kOfLane = (n_experts + 31) / 32;
  float largest = lowest(), total = 0;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int e = lane_id() + 32 * k;
    if (e < n_experts) largest = fmaxf(largest, logits[e]);
  }
  largest = lanes_max(largest, 32);
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int e = lane_id() + 32 * k;
    if (e < n_experts) total += expf(logits[e] - largest);
  }
  total = lanes_sum(total, 32);
  float weight = expf(logit - largest);
  if (mode < 2) weight /= total;
  float sum = 0;
#pragma unroll
  for (int u = 0; u < n_used; ++u) sum += __shfl_sync(0xFFFFFFFFu, weight, u);
  return (mode == 0 ? weight : weight / sum) * scale;
}

}  // namespace zinc::simt
