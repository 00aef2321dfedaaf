// 256 elements in 16 groups of x = d * scale * q, as Q3_K and Q6_K have them: q in [-kTop, kTop - 1], scale in
// [-kTopScale, kTopScale - 1], d f16. Minimizes the weighted squared error in three steps: the best scale of each group,
// d from the scales, weighted by what an error of each costs; then each group again among the integer scales around its
// optimum, and d fitted to all codes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>

#include "quantize/lanes.h"
#include "quantize/row_weights.h"
#include "quantize/scale_search.h"
#include "tensor/half.h"

namespace zinc {

template <int kTop, int kTopScale>
class SymmetricGroups {
 public:
  static constexpr size_t kElems = 256, kGroups = 16, kGroupElems = kElems / kGroups;

  struct Result {
    uint16_t d = 0;
    std::array<int8_t, kGroups> scale{};
    std::array<int8_t, kElems> q{};
  };

  // REQUIRES: |row| <= kLargestWeight.
  static Result quantize(std::span<const float, kElems> row, const RowWeights& importance, size_t begin) {
    SymmetricGroups groups(row.data());
    importance.fill<kElems>(row, begin, 2.0F, groups.w_);
    return groups.solve();
  }

 private:
  explicit SymmetricGroups(const float* x) : x_(x) {}

  struct Codes {
    float d = 0;  // as stored
    std::array<float, kGroups> scale{};
    double error = 0;
  };
  static constexpr size_t kCandidates = 24;
  static constexpr int kRounds = 2;

  Result solve() {
    std::array<float, kGroups> costs;
    for (size_t g = 0; g < kGroups; ++g) {
      const ScaleFit fit = fit_group(x_ + g * kGroupElems, w_.data() + g * kGroupElems);
      scales_[g] = fit.scale;
      costs[g] = fit.curvature;
    }
    Codes best;
    best.d = half_to_float(signed_half(fit_step(scales_, costs)));
    choose_group_scales(best);
    for (int round = 0; round < kRounds; ++round) {
      Codes next = best;
      refit(next);
      choose_group_scales(next);
      if (next.error >= best.error) break;
      best = next;
    }
    return pack(best);
  }

  static uint16_t signed_half(float d) {
    constexpr uint16_t kSign = 0x8000;
    return d < 0 ? static_cast<uint16_t>(scale_to_half(-d) | kSign) : scale_to_half(d);
  }

  // The largest magnitude becomes -kTop or, with the other sign of the scale, kTop - 1, each somewhat more or less.
  static ScaleFit fit_group(const float* x, const float* w) {
    const float largest = largest_magnitude(std::span(x, kGroupElems));
    if (!(std::abs(largest) > 1e-30F)) return {};
    std::array<float, kCandidates> inverse;
    for (size_t i = 0; i < kCandidates; ++i) {
      inverse[i] = -(kTop - 1.0F + 0.1F * static_cast<float>(i)) / largest;
    }
    return search_scale<-kTop, kTop - 1, kGroupElems>(x, w, inverse);
  }

  static float fit_step(const std::array<float, kGroups>& values, const std::array<float, kGroups>& costs) {
    const float largest = largest_magnitude(values);
    if (!(std::abs(largest) > 0)) return 0;
    std::array<float, 16> inverse;
    for (size_t i = 0; i < inverse.size(); ++i) inverse[i] = -(kTopScale - 0.75F + 0.1F * static_cast<float>(i)) / largest;
    return search_scale<-kTopScale, kTopScale - 1, kGroups>(values.data(), costs.data(), inverse).scale;
  }

  void choose_group_scales(Codes& codes) const {
    const float inverse_d = inverse_scale(codes.d);
    codes.error = 0;
    const Lanes low = all_lanes(-kTop), high = all_lanes(kTop - 1);
    for (size_t g = 0; g < kGroups; ++g) {
      const float exact = std::clamp<float>(scales_[g] * inverse_d, -kTopScale, kTopScale);
      const float first = std::floor(exact) - kBelow;
      float scale[2 * kLanes], inverses[2 * kLanes], errors[2 * kLanes];
      for (size_t i = 0; i < 2 * kLanes; ++i) {
        scale[i] = std::clamp<float>(first + static_cast<float>(i), -kTopScale, kTopScale - 1);
        inverses[i] = inverse_scale(codes.d * scale[i]);
      }
      Lanes d[2], inverse[2], error[2] = {};
      for (size_t k = 0; k < 2; ++k) {
        d[k] = load_lanes(scale + k * kLanes) * codes.d;
        inverse[k] = load_lanes(inverses + k * kLanes);
      }
      for (size_t i = g * kGroupElems; i < (g + 1) * kGroupElems; ++i) {
        const Lanes xi = all_lanes(x_[i]), wi = all_lanes(w_[i]);
        for (size_t k = 0; k < 2; ++k) {
          const Lanes q = round_lanes(min_lanes(high, max_lanes(low, xi * inverse[k])));
          const Lanes e = xi - d[k] * q;
          error[k] += wi * e * e;
        }
      }
      std::memcpy(errors, error, sizeof(error));
      const auto least = static_cast<size_t>(std::min_element(std::begin(errors), std::end(errors)) - errors);
      codes.scale[g] = scale[least];
      codes.error += errors[least];
    }
  }
  static constexpr float kBelow = 3;

  static float code(float x, float inverse) {
    return round_to_integer(std::min<float>(kTop - 1, std::max<float>(-kTop, x * inverse)));
  }

  void refit(Codes& codes) const {
    double p_sum = 0, a_sum = 0;
    for (size_t g = 0; g < kGroups; ++g) {
      const float inverse = inverse_scale(codes.d * codes.scale[g]);
      float p = 0, a = 0;
      for (size_t i = g * kGroupElems; i < (g + 1) * kGroupElems; ++i) {
        const float q = code(x_[i], inverse);
        const float wq = w_[i] * q;
        a += wq * q;
        p += wq * x_[i];
      }
      const double s = codes.scale[g];
      a_sum += s * s * a;
      p_sum += s * p;
    }
    if (a_sum > 0) codes.d = half_to_float(signed_half(static_cast<float>(p_sum / a_sum)));
  }

  Result pack(const Codes& codes) const {
    Result result{.d = float_to_half(codes.d)};
    for (size_t g = 0; g < kGroups; ++g) {
      result.scale[g] = static_cast<int8_t>(codes.scale[g]);
      const float inverse = inverse_scale(codes.d * codes.scale[g]);
      for (size_t i = g * kGroupElems; i < (g + 1) * kGroupElems; ++i) {
        result.q[i] = static_cast<int8_t>(static_cast<int>(code(x_[i], inverse)));
      }
    }
    return result;
  }

  const float* x_;
  std::array<float, kElems> w_;
  std::array<float, kGroups> scales_;
};

}  // namespace zinc
