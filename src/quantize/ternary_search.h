// 256 elements of d * {-1, 0, 1}: of eight thresholds between 0 and the largest magnitude, above which an element is
// not 0, the one that loses least with the best d for its elements. Weights that are ternary already are kept.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quantize/lanes.h"
#include "quantize/row_weights.h"
#include "quantize/scale_search.h"

namespace zinc {

struct TernaryBlock {
  uint16_t d = 0;                // f16
  std::array<uint8_t, 256> q{};  // 0, 1, 2 for -1, 0, 1
};

inline TernaryBlock search_ternary(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  std::array<float, 256> w;
  importance.fill<256>(x, begin, 2.0F, w);
  const float largest = std::abs(largest_magnitude<256>(x.data()));
  constexpr size_t kVectors = 2;
  Lanes threshold[kVectors], p[kVectors] = {}, a[kVectors] = {};
  for (size_t k = 0; k < kVectors; ++k) {
    threshold[k] = (counting_lanes() + (static_cast<float>(k * kLanes) + 0.5F)) * (largest / (kVectors * kLanes));
  }
  for (size_t i = 0; i < 256; ++i) {
    const float magnitude = std::abs(x[i]);
    const Lanes wi = all_lanes(w[i]), wxi = all_lanes(w[i] * magnitude);
    for (size_t k = 0; k < kVectors; ++k) {
      const auto is_one = magnitude > threshold[k];
      a[k] += is_one ? wi : Lanes{};
      p[k] += is_one ? wxi : Lanes{};
    }
  }
  float d = 0, best_gain = 0;
  for (size_t k = 0; k < kVectors; ++k) {
    const Lanes mean = p[k] / max_lanes(a[k], all_lanes(1e-37F)), gain = mean * p[k];
    const size_t lane = index_of_largest(gain);
    if (!(gain[lane] > best_gain)) continue;
    best_gain = gain[lane];
    d = mean[lane];
  }
  TernaryBlock block;
  block.d = scale_to_half(d);
  const float half = half_to_float(block.d) / 2;
  for (size_t i = 0; i < 256; ++i) block.q[i] = static_cast<uint8_t>(1 + (x[i] > half) - (x[i] < -half));
  return block;
}

}  // namespace zinc
