// Searches for the scale of a group that loses least: minimize sum w (x - d q)^2 over d and integer codes q in
// [kLow, kHigh]. For codes q the best d is P / A with P = sum w x q and A = sum w q^2, and it removes P^2 / A of
// sum w x^2; so candidates differ in how they round, and one pass over the elements judges kLanes of them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "quantize/lanes.h"
#include "tensor/half.h"

namespace zinc {

struct ScaleFit {
  float scale = 0;      // d
  float curvature = 0;  // A: an error e of d costs A e^2
};

struct Range {
  float low, high;  // of the elements and 0
};
template <size_t n>
Range range_with_zero(const float* x) {
  Lanes low{}, high{};
  for (size_t i = 0; i < n; i += kLanes) {
    const Lanes xi = load_lanes(x + i);
    low = min_lanes(low, xi);
    high = max_lanes(high, xi);
  }
  return {.low = least(low), .high = largest(high)};
}

// The element of largest magnitude, with its sign.
template <size_t n>
float largest_magnitude(const float* x) {
  const Range range = range_with_zero<n>(x);
  return range.high > -range.low ? range.high : range.low;
}

inline constexpr float kLargestHalf = 65504;

// d as f16: finite, and nonzero if d is nonzero, so that codes below can make up for it.
inline uint16_t scale_to_half(float d) {
  const uint16_t half = float_to_half(std::clamp(d, -kLargestHalf, kLargestHalf));
  constexpr uint16_t kSmallest = 1;  // 2^-24
  return d > 0 && half == 0 ? kSmallest : half;
}

inline uint16_t signed_scale_to_half(float d) {
  constexpr uint16_t kSign = 0x8000;
  return d < 0 ? static_cast<uint16_t>(scale_to_half(-d) | kSign) : scale_to_half(d);
}

// 1 / d for rounding x / d; 0 where that is too large for a float.
inline float inverse_scale(float d) { return std::abs(d) < 1e-30F ? 0.0F : 1.0F / d; }
inline Lanes inverse_scales(Lanes d) {
  const auto is_usable = d * d > 1e-37F;
  return is_usable ? 1.0F / d : Lanes{};
}

// The best of `inverse`, candidates for 1 / d.
template <int kLow, int kHigh, size_t n, size_t kCandidates>
ScaleFit search_scale(const float* x, const float* w, const std::array<float, kCandidates>& inverse) {
  static_assert(kCandidates % (2 * kLanes) == 0);
  float wx[n];
  for (size_t i = 0; i < n; ++i) wx[i] = w[i] * x[i];
  const Lanes low = all_lanes(kLow), high = all_lanes(kHigh);
  Lanes best_p{}, best_a = all_lanes(1), best_gain{};
  for (size_t c = 0; c < kCandidates; c += 2 * kLanes) {
    const Lanes by[2] = {load_lanes(&inverse[c]), load_lanes(&inverse[c + kLanes])};
    Lanes p[2] = {}, a[2] = {};
    for (size_t i = 0; i < n; ++i) {
      const Lanes xi = all_lanes(x[i]), wi = all_lanes(w[i]), wxi = all_lanes(wx[i]);
      for (size_t k = 0; k < 2; ++k) {
        const Lanes q = max_lanes(low, min_lanes(high, round_lanes(xi * by[k])));
        p[k] += wxi * q;
        a[k] += wi * q * q;
      }
    }
    for (size_t k = 0; k < 2; ++k) {
      a[k] = max_lanes(a[k], all_lanes(1e-37F));
      const Lanes gain = p[k] * p[k] / a[k];
      const auto is_better = gain > best_gain;
      best_gain = is_better ? gain : best_gain;
      best_p = is_better ? p[k] : best_p;
      best_a = is_better ? a[k] : best_a;
    }
  }
  const size_t lane = index_of_largest(best_gain);
  return {.scale = best_p[lane] / best_a[lane], .curvature = best_p[lane] == 0 ? 0 : best_a[lane]};
}

}  // namespace zinc
