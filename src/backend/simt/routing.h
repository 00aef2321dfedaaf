// Top-k routing of a token's logits to experts, by one warp; the same bits in every kernel.
#pragma once

#include "backend/simt/device_common.h"

namespace zinc::simt {

// Argmax over all lanes; the lower index among equals.
ZINC_DEVICE void warp_argmax(float& value, int& index) {
#if __CUDA_ARCH__ >= 800
  // As sortable integers; both zeros are equal.
  const u32 bits = __float_as_uint(value + 0.0f), order = bits >> 31 ? ~bits : bits | 0x80000000u;
  const u32 best = __reduce_max_sync(0xFFFFFFFFu, order);
  index = static_cast<int>(__reduce_min_sync(0xFFFFFFFFu, order == best ? static_cast<u32>(index) : 0x7FFFFFFFu));
  value = __uint_as_float(best >> 31 ? best & 0x7FFFFFFFu : ~best);
#else
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, value, step);
    const int other_index = __shfl_xor_sync(0xFFFFFFFFu, index, step);
    if (other > value || (other == value && other_index < index)) {
      value = other;
      index = other_index;
    }
  }
#endif
}

constexpr int kNoIndex = 0x7FFFFFFF;

// Sortable integers above zero; both zeros are equal; NaN gives zero.
ZINC_DEVICE u32 sortable_bits_or_zero(float value) {
  const u32 bits = __float_as_uint(value + 0.0f);
  return isnan(value) ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
}
ZINC_DEVICE float from_sortable_bits(u32 order) { return __uint_as_float(order >> 31 ? order & 0x7FFFFFFFu : ~order); }

ZINC_DEVICE u32 warp_max_bits(u32 x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xFFFFFFFFu, x);
#else
  for (int step = 16; step > 0; step /= 2) x = max(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
#endif
}
ZINC_DEVICE u32 warp_min_bits(u32 x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_min_sync(0xFFFFFFFFu, x);
#else
  return ~warp_max_bits(~x);
#endif
}

// The best experts of a row of logits, best first, the lower index among equals; NaN is never selected. The logits stay
// in registers: lane l has experts l, l + 32 and so on. Lane u gets selected expert u. REQUIRES: n_experts_used <= 32.
template <int n_experts, int n_experts_used>
ZINC_DEVICE void top_k_experts(const float* logits, int& id, float& logit) {
  constexpr int kLogitsPerLane = (n_experts + 31) / 32;
  u32 own[kLogitsPerLane];
#pragma unroll
  for (int k = 0; k < kLogitsPerLane; ++k) {
    const int e = lane_id() + 32 * k;
    own[k] = e < n_experts ? sortable_bits_or_zero(logits[e]) : 0;
  }
  id = 0;
  logit = neg_inf();
#pragma unroll 1
  for (int u = 0; u < n_experts_used; ++u) {
    u32 best = own[0];
#pragma unroll
    for (int k = 1; k < kLogitsPerLane; ++k) best = max(best, own[k]);
    best = warp_max_bits(best);
    if (best == 0) break;
    u32 lowest_index = kNoIndex;
#pragma unroll
    for (int k = kLogitsPerLane - 1; k >= 0; --k) {
      if (own[k] == best) lowest_index = static_cast<u32>(lane_id() + 32 * k);
    }
    const int index = static_cast<int>(warp_min_bits(lowest_index));
#pragma unroll
    for (int k = 0; k < kLogitsPerLane; ++k) {
      if (index == lane_id() + 32 * k) own[k] = 0;
    }
    if (lane_id() == u) {
      id = index;
      logit = from_sortable_bits(best);
    }
  }
}

// The weight of the lane's selected expert, from its logit.
template <int n_experts, int n_experts_used>
ZINC_DEVICE float expert_weight(const float* logits, float logit, int router_normalization,
                                float routed_scaling_factor) {
  constexpr int kLogitsPerLane = (n_experts + 31) / 32;
  float max_logit = neg_inf(), total = 0;
#pragma unroll
  for (int k = 0; k < kLogitsPerLane; ++k) {
    const int e = lane_id() + 32 * k;
    if (e < n_experts) max_logit = fmaxf(max_logit, logits[e]);
  }
  max_logit = warp_max(max_logit, 32);
#pragma unroll
  for (int k = 0; k < kLogitsPerLane; ++k) {
    const int e = lane_id() + 32 * k;
    if (e < n_experts) total += expf(logits[e] - max_logit);
  }
  total = warp_sum(total, 32);
  float weight = expf(logit - max_logit);  // the maximum is among the selected
  if (router_normalization < kSoftmaxOfSelected) weight /= total;
  float sum = 0;
#pragma unroll
  for (int u = 0; u < n_experts_used; ++u) sum += __shfl_sync(0xFFFFFFFFu, weight, u);
  return (router_normalization == kSoftmaxOverAll ? weight : weight / sum) * routed_scaling_factor;
}

}  // namespace zinc::simt
