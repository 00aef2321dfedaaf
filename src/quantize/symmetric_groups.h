// 256 elements in 16 groups of x = d * scale * q, as Q3_K and Q6_K have them: q in [-kTop, kTop - 1], scale in
// [-kTopScale, kTopScale - 1], d f16. Minimizes the weighted squared error in three steps: the best scale of each
// group, d from the scales, weighted by what an error of each costs; then each group again among the integer scales
// around its optimum, and d fitted to all codes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
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
    SymmetricGroups groups(row.data(), importance.has_importance());
    importance.fill<kElems>(row, begin, 2.0F, groups.w_);
    return groups.solve();
  }

 private:
  SymmetricGroups(const float* x, bool is_thorough) : x_(x), is_thorough_(is_thorough) {}

  struct Codes {
    float d = 0;  // as stored
    std::array<float, kGroups> scale{};
    double error = 0;
  };
  static constexpr size_t kCandidates = 8;          // 24 lose 0.1 % less
  static constexpr int kRounds = kTop > 4 ? 1 : 0;  // on Q3_K a round gains nothing

  Result solve() {
    std::array<float, kGroups> costs;
    for (size_t g = 0; g < kGroups; ++g) {
      const ScaleFit fit = fit_group(x_ + g * kGroupElems, w_.data() + g * kGroupElems);
      scales_[g] = fit.scale;
      costs[g] = fit.curvature;
    }
    Codes best = with_step(fit_step(scales_, costs));
    if (is_thorough_) {
      for (const float top : {kTopScale - 0.5F, kTopScale + 0.0F, kTopScale + 0.5F}) {
        const Codes next = with_step(-largest_magnitude<kGroups>(scales_.data()) / top);
        if (next.error < best.error) best = next;
      }
    }
    for (int round = 0; round < kRounds; ++round) {
      Codes next = best;
      refit(next);
      choose_group_scales(next);
      if (next.error >= best.error) break;
      best = next;
    }
    return pack(best);
  }

  // The largest magnitude becomes -kTop or, with the other sign of the scale, kTop - 1, each somewhat more or less.
  static ScaleFit fit_group(const float* x, const float* w) {
    const float largest = largest_magnitude<kGroupElems>(x);
    if (!(std::abs(largest) > 1e-30F)) return {};
    std::array<float, kCandidates> inverse;
    for (size_t i = 0; i < kCandidates; ++i) {
      inverse[i] = -(kTop - 1.0F + 0.3F * static_cast<float>(i)) / largest;
    }
    return search_scale<-kTop, kTop - 1, kGroupElems>(x, w, inverse);
  }

  static float fit_step(const std::array<float, kGroups>& values, const std::array<float, kGroups>& costs) {
    const float largest = largest_magnitude<kGroups>(values.data());
    if (!(std::abs(largest) > 0)) return 0;
    std::array<float, 16> inverse;
    for (size_t i = 0; i < inverse.size(); ++i)
      inverse[i] = -(kTopScale - 0.75F + 0.1F * static_cast<float>(i)) / largest;
    return search_scale<-kTopScale, kTopScale - 1, kGroups>(values.data(), costs.data(), inverse).scale;
  }

  Codes with_step(float d) const {
    Codes codes;
    codes.d = half_to_float(signed_scale_to_half(d));
    choose_group_scales(codes);
    return codes;
  }

  // For given d: the integer scale of each group, among eight around its optimum.
  void choose_group_scales(Codes& codes) const {
    const float inverse_d = inverse_scale(codes.d);
    codes.error = 0;
    const Lanes low = all_lanes(-kTop), high = all_lanes(kTop - 1);
    for (size_t g = 0; g < kGroups; ++g) {
      const float first = std::floor(std::clamp<float>(scales_[g] * inverse_d, -kTopScale, kTopScale)) - 3;
      Lanes scale[2], d[2], inverse[2], error[2] = {};
      for (size_t k = 0; k < 2; ++k) {
        scale[k] = clamp_lanes(counting_lanes() + (first + static_cast<float>(k * kLanes)), -kTopScale, kTopScale - 1);
        d[k] = scale[k] * codes.d;
        inverse[k] = inverse_scales(d[k]);
      }
      for (size_t i = g * kGroupElems; i < (g + 1) * kGroupElems; ++i) {
        const Lanes x = all_lanes(x_[i]), w = all_lanes(w_[i]);
        for (size_t k = 0; k < 2; ++k) {
          const Lanes q = round_lanes(min_lanes(high, max_lanes(low, x * inverse[k])));
          const Lanes e = x - d[k] * q;
          error[k] += w * e * e;
        }
      }
      const auto is_second = error[1] < error[0];
      const Lanes least = is_second ? error[1] : error[0], best = is_second ? scale[1] : scale[0];
      const size_t lane = index_of_largest(-least);
      codes.scale[g] = best[lane];
      codes.error += least[lane];
    }
  }

  static Lanes code(Lanes x, float inverse) {
    return round_lanes(min_lanes(all_lanes(kTop - 1), max_lanes(all_lanes(-kTop), x * inverse)));
  }

  void refit(Codes& codes) const {
    double p_sum = 0, a_sum = 0;
    for (size_t g = 0; g < kGroups; ++g) {
      const float inverse = inverse_scale(codes.d * codes.scale[g]);
      Lanes p{}, a{};
      for (size_t i = g * kGroupElems; i < (g + 1) * kGroupElems; i += kLanes) {
        const Lanes x = load_lanes(x_ + i), q = code(x, inverse), wq = load_lanes(&w_[i]) * q;
        a += wq * q;
        p += wq * x;
      }
      const double s = codes.scale[g];
      a_sum += s * s * sum(a);
      p_sum += s * sum(p);
    }
    if (a_sum > 0) codes.d = half_to_float(signed_scale_to_half(static_cast<float>(p_sum / a_sum)));
  }

  Result pack(const Codes& codes) const {
    std::array<int32_t, kElems> wide;
    Result result{.d = float_to_half(codes.d)};
    for (size_t g = 0; g < kGroups; ++g) {
      result.scale[g] = static_cast<int8_t>(codes.scale[g]);
      const float inverse = inverse_scale(codes.d * codes.scale[g]);
      for (size_t i = g * kGroupElems; i < (g + 1) * kGroupElems; i += kLanes) {
        const Lanes q = code(load_lanes(x_ + i), inverse);
        store_lanes(to_integers(q), &wide[i]);
      }
    }
    for (size_t i = 0; i < kElems; ++i) result.q[i] = static_cast<int8_t>(wide[i]);
    return result;
  }

  const float* x_;
  const bool is_thorough_;  // several d: in a block with an outlier the costs of the scales are far from quadratic
  std::array<float, kElems> w_;
  std::array<float, kGroups> scales_;
};

}  // namespace zinc
