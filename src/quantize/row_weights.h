// How much the error of an element counts: its column's importance (1 without an importance matrix) times
// sqrt(sigma2 + x^2), because large weights of a trained model matter more than their columns alone say.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>

#include "quantize/lanes.h"

namespace zinc {

// Larger values than any scale in f16 reaches are cut, so that squares and products stay within float's range.
template <size_t n>
std::array<float, n> clamped(std::span<const float, n> x) {
  constexpr float kLargest = 1e8F;
  std::array<float, n> result;
  for (size_t i = 0; i < n; ++i) result[i] = std::min(kLargest, std::max(-kLargest, x[i]));
  return result;
}

class RowWeights {
 public:
  // Importance is scaled to a mean of about 1. Columns without any keep a little, so that they are quantized sensibly.
  explicit RowWeights(std::span<const float> importance) : importance_(importance) {
    if (importance.empty()) return;
    const double mean =
        std::accumulate(importance.begin(), importance.end(), 0.0) / static_cast<double>(importance.size());
    if (mean < 1e-30 || mean > 1e30) {
      importance_ = {};
    } else {
      inverse_mean_ = 1 / mean;
    }
  }

  // weights[i] for row[begin + i] == x[i]; sigma2 is `sigma2_factor` times the mean of x^2.
  template <size_t n>
  void fill(std::span<const float, n> x, size_t begin, float sigma2_factor, std::span<float, n> weights) const {
    Lanes squares{};
    for (size_t i = 0; i < n; i += kLanes) squares += load_lanes(&x[i]) * load_lanes(&x[i]);
    const float sigma2 = sigma2_factor * sum(squares) / static_cast<float>(n);
    for (size_t i = 0; i < n; ++i) weights[i] = std::sqrt(sigma2 + x[i] * x[i]);
    if (importance_.empty()) return;
    const float* importance = importance_.data() + begin;
    const float scale = static_cast<float>(inverse_mean_);
    for (size_t i = 0; i < n; ++i) weights[i] *= importance[i] * scale + kLeastImportance;
  }

 private:
  static constexpr float kLeastImportance = 1e-5F;
  std::span<const float> importance_;
  double inverse_mean_ = 1;
};

}  // namespace zinc
