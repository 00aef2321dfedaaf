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

// The element of largest magnitude, with its sign.
inline float largest_magnitude(std::span<const float> x) {
  float low = 0, high = 0;
  for (const float value : x) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  return high > -low ? high : low;
}

// d as f16: finite, and nonzero if d is nonzero, so that codes below can make up for it.
inline uint16_t scale_to_half(float d) {
  constexpr float kLargestHalf = 65504;
  const uint16_t half = float_to_half(std::clamp(d, -kLargestHalf, kLargestHalf));
  constexpr uint16_t kSmallest = 1;  // 2^-24
  return d > 0 && half == 0 ? kSmallest : half;
}

// 1 / d for rounding x / d; 0 where that is too large for a float.
inline float inverse_scale(float d) { return std::abs(d) < 1e-30F ? 0.0F : 1.0F / d; }

// The best of `inverse`, candidates for 1 / d.
template <int kLow, int kHigh, size_t n, size_t kCandidates>
ScaleFit search_scale(const float* x, const float* w, const std::array<float, kCandidates>& inverse) {
  static_assert(kCandidates % (2 * kLanes) == 0);
  float wx[n];
  for (size_t i = 0; i < n; ++i) wx[i] = w[i] * x[i];
  const Lanes low = all_lanes(kLow), high = all_lanes(kHigh);
  ScaleFit best;
  float best_gain = 0;
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
      for (size_t lane = 0; lane < kLanes; ++lane) {
        if (a[k][lane] > 0 && p[k][lane] * p[k][lane] > best_gain * a[k][lane]) {
          best = {.scale = p[k][lane] / a[k][lane], .curvature = a[k][lane]};
          best_gain = best.scale * p[k][lane];
        }
      }
    }
  }
  return best;
}

}  // namespace zinc
