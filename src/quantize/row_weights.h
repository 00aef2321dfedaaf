// How much the error of an element counts: its column's importance (1 without an importance matrix) times
// sqrt(sigma2 + x^2), because large weights of a trained model matter more than their columns alone say.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "quantize/lanes.h"

namespace zinc {

// Elements are cut at this magnitude, which no scale in f16 reaches: squares and products stay within float's range.
inline constexpr float kLargestWeight = 1e8F;

class RowWeights {
 public:
  // Importance is scaled to a mean of about 1. Columns without any keep a little, so that they are quantized sensibly.
  // REQUIRES: the size is a multiple of 16.
  explicit RowWeights(std::span<const float> importance) : importance_(importance) {
    if (importance.empty()) return;
    Lanes total[4] = {};  // four sums: an addition does not wait for the one before
    constexpr size_t kStep = 4 * kLanes;
    for (size_t i = 0; i < importance.size(); i += kStep) {
      for (size_t k = 0; k < 4; ++k) total[k] += load_lanes(&importance[i + k * kLanes]);
    }
    const float mean = sum((total[0] + total[1]) + (total[2] + total[3])) / static_cast<float>(importance.size());
    if (mean < 1e-30F || mean > 1e30F) {
      importance_ = {};
    } else {
      scale_ = 1 / mean;
    }
  }

  bool has_importance() const { return !importance_.empty(); }

  // weights[i] for row[begin + i] == x[i]; sigma2 is `sigma2_factor` times the mean of x^2.
  template <size_t n>
  void fill(std::span<const float, n> x, size_t begin, float sigma2_factor, std::span<float, n> weights) const {
    Lanes squares{};
    for (size_t i = 0; i < n; i += kLanes) squares += load_lanes(&x[i]) * load_lanes(&x[i]);
    const float sigma2 = sigma2_factor * sum(squares) / static_cast<float>(n);
    for (size_t i = 0; i < n; ++i) weights[i] = std::sqrt(sigma2 + x[i] * x[i]);
    multiply_by_importance(begin, weights);
  }

  // The same without the factor sqrt(sigma2 + x^2).
  template <size_t n>
  void fill_with_importance(size_t begin, std::span<float, n> weights) const {
    std::fill(weights.begin(), weights.end(), 1.0F);
    multiply_by_importance(begin, weights);
  }

 private:
  template <size_t n>
  void multiply_by_importance(size_t begin, std::span<float, n> weights) const {
    if (importance_.empty()) return;
    const float* importance = importance_.data() + begin;
    for (size_t i = 0; i < n; i += kLanes) {
      const Lanes w = load_lanes(&weights[i]) * (load_lanes(importance + i) * scale_ + kLeastImportance);
      store_lanes(w, &weights[i]);
    }
  }

  static constexpr float kLeastImportance = 1e-5F;
  std::span<const float> importance_;
  float scale_ = 1;
};

}  // namespace zinc
