// 256 elements in groups of x = d * scale * q - dmin * min, as Q2_K, Q4_K and Q5_K have them: q in [0, kMaxCode], scale
// and min in [0, kMaxScale], d and dmin f16. Minimizes the weighted squared error in three steps:
// 1. Each group for itself, with scale and minimum of any value: candidates for how steeply codes rise, and for each
//    the least-squares line through its codes.
// 2. d and dmin from the groups' scales and minima, weighted by what an error of each costs.
// 3. Each group again among the integer scales and minima around its optimum, then d and dmin fitted to all codes.
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

template <size_t kGroups, int kMaxCode, int kMaxScale>
class AffineGroups {
 public:
  static constexpr size_t kElems = 256;
  static constexpr size_t kGroupElems = kElems / kGroups;

  struct Result {
    uint16_t d = 0, dmin = 0;
    std::array<uint8_t, kGroups> scale{}, min{};
    std::array<uint8_t, kElems> q{};
  };

  // REQUIRES: |row| <= kLargestWeight.
  static Result quantize(std::span<const float, kElems> row, const RowWeights& importance, size_t begin) {
    AffineGroups groups(row.data());
    importance.fill<kElems>(row, begin, 2.0F, groups.w_);
    return groups.solve();
  }

 private:
  explicit AffineGroups(const float* x) : x_(x) {}

  // The line of a group and what errors of it cost: a (d - d*)^2 - 2 b (d - d*)(m - m*) + c (m - m*)^2.
  struct Line {
    float d = 0, m = 0;  // x = d q - m, m >= 0
    float a = 0, b = 0, c = 0;
  };
  struct Codes {
    float d, dmin;  // as stored
    std::array<float, kGroups> scale, min;
    double error = 0;
  };

  Result solve() {
    for (size_t g = 0; g < kGroups; ++g) lines_[g] = fit_line(x_ + g * kGroupElems, w_.data() + g * kGroupElems);
    Codes best = with_step(fit_scale_step());
    float largest = 0;
    for (const Line& line : lines_) largest = std::max(largest, line.d);
    for (const float top : {kMaxScale - 0.5F, kMaxScale + 0.0F, kMaxScale + 0.5F}) {
      const Codes next = with_step(largest / top);
      if (next.error < best.error) best = next;
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

  // How much steeper than max - min the codes may rise: the candidates kMaxCode + kFirst, ... + kLast.
  static constexpr size_t kCandidates = 24;
  static constexpr float kFirst = -1.0F, kLast = kMaxCode > 3 ? 1.6F : 1.1F;
  static constexpr int kRounds = 2;

  static Line fit_line(const float* x, const float* w) {
    const auto [low, high] = range_with_zero<kGroupElems>(x);
    if (!(high > low)) return {.c = 1};
    float y[kGroupElems], wy[kGroupElems];
    Lanes w_sum{}, wy_sum{}, wyy_sum{};
    for (size_t i = 0; i < kGroupElems; i += kLanes) {
      const Lanes wi = load_lanes(w + i), yi = load_lanes(x + i) - low, wyi = wi * yi;
      store_lanes(yi, y + i);
      store_lanes(wyi, wy + i);
      w_sum += wi;
      wy_sum += wyi;
      wyy_sum += wyi * yi;
    }
    const float sw = sum(w_sum), swy = sum(wy_sum), swyy = sum(wyy_sum);
    struct {
      Lanes error{}, d{}, m{}, a{}, b{};
    } best;
    best.error = all_lanes(2 * swyy);
    constexpr float kStep = (kLast - kFirst) / (kCandidates - 1);
    const float per_range = 1 / (high - low);
    float inverse[kCandidates];
    for (size_t i = 0; i < kCandidates; ++i)
      inverse[i] = (kMaxCode + kFirst + kStep * static_cast<float>(i)) * per_range;
    for (size_t candidate = 0; candidate < kCandidates; candidate += 2 * kLanes) {
      const Lanes by[2] = {load_lanes(inverse + candidate), load_lanes(inverse + candidate + kLanes)};
      Lanes a[2] = {}, b[2] = {}, p[2] = {};
      const Lanes top = all_lanes(kMaxCode);
      for (size_t i = 0; i < kGroupElems; ++i) {
        const Lanes yi = all_lanes(y[i]), wi = all_lanes(w[i]), wyi = all_lanes(wy[i]);
        for (size_t k = 0; k < 2; ++k) {
          const Lanes q = min_lanes(top, round_lanes(yi * by[k]));
          const Lanes wq = wi * q;
          b[k] += wq;
          a[k] += wq * q;
          p[k] += wyi * q;
        }
      }
      for (size_t k = 0; k < 2; ++k) {
        const Lanes per_determinant = 1.0F / max_lanes(sw * a[k] - b[k] * b[k], all_lanes(1e-37F));
        const Lanes free_d = (sw * p[k] - swy * b[k]) * per_determinant;  // y = d q - m
        const Lanes free_m = (b[k] * p[k] - a[k] * swy) * per_determinant;
        const auto is_free = free_m > low;
        const Lanes px = p[k] + low * b[k];  // otherwise x = d q: no negative minimum can be stored
        const Lanes m = is_free ? free_m : all_lanes(low);
        const Lanes d = is_free ? free_d : px / max_lanes(a[k], all_lanes(1e-37F));
        const Lanes error = swyy + m * (2 * swy + m * sw) - d * (2.0F * (p[k] + m * b[k]) - d * a[k]);
        const auto is_better = error < best.error;
        best.error = is_better ? error : best.error;
        best.d = is_better ? d : best.d;
        best.m = is_better ? m : best.m;
        best.a = is_better ? a[k] : best.a;
        best.b = is_better ? b[k] : best.b;
      }
    }
    const size_t lane = index_of_largest(-best.error);
    if (!(best.d[lane] > 0)) return {.m = -low, .c = sw};
    return {.d = best.d[lane], .m = best.m[lane] - low, .a = best.a[lane], .b = best.b[lane], .c = sw};
  }

  // The step between integer scales for values >= 0, and 0 where all are 0.
  static float fit_step(const std::array<float, kGroups>& values, const std::array<float, kGroups>& costs) {
    const float largest = *std::max_element(values.begin(), values.end());
    if (!(largest > 0)) return 0;
    std::array<float, 16> inverse;
    for (size_t i = 0; i < inverse.size(); ++i) {
      inverse[i] = (kMaxScale - 0.75F + 0.1F * static_cast<float>(i)) / largest;
    }
    return search_scale<0, kMaxScale, kGroups>(values.data(), costs.data(), inverse).scale;
  }

  float fit_scale_step() const {
    std::array<float, kGroups> values, costs;
    for (size_t g = 0; g < kGroups; ++g) {
      values[g] = lines_[g].d;
      costs[g] = lines_[g].a;
    }
    return fit_step(values, costs);
  }

  Codes with_step(float d) const {
    std::array<float, kGroups> values, costs;
    Codes codes{};
    codes.d = half_to_float(scale_to_half(d));
    const float inverse = inverse_scale(codes.d);
    for (size_t g = 0; g < kGroups; ++g) codes.scale[g] = lines_[g].d * inverse;
    for (size_t g = 0; g < kGroups; ++g) {  // the minimum that suits the rounded scale
      const float scale = std::min<float>(kMaxScale, round_to_integer(std::min<float>(kMaxScale, codes.scale[g])));
      values[g] = std::max(0.0F, best_min(lines_[g], scale * codes.d));
      costs[g] = lines_[g].c;
    }
    codes.dmin = half_to_float(scale_to_half(fit_step(values, costs)));
    choose_group_scales(codes);
    return codes;
  }

  static float best_min(const Line& line, float d) { return line.m + (d - line.d) * line.b / line.c; }

  // For given d and dmin: the integer scale and minimum of each group, among those around its line.
  void choose_group_scales(Codes& codes) const {
    const float inverse_d = inverse_scale(codes.d), inverse_dmin = inverse_scale(codes.dmin);
    codes.error = 0;
    for (size_t g = 0; g < kGroups; ++g) {
      const Line& line = lines_[g];
      const float first = std::floor(std::min<float>(kMaxScale, line.d * inverse_d)) - 1;
      const Lanes scale = clamp_lanes(counting_lanes() + first, 0, kMaxScale), d = scale * codes.d;
      const Lanes best_m = line.m + (d - line.d) * (line.b / line.c);
      const Lanes above =
          clamp_lanes(round_lanes(clamp_lanes(best_m * inverse_dmin, 0, kMaxScale) + 0.5F), 0, kMaxScale);
      const Lanes min[2] = {max_lanes(above - 1.0F, Lanes{}), above};
      Lanes error[2];
      group_errors(g, d, min[0] * codes.dmin, min[1] * codes.dmin, error);
      const auto is_above = error[1] < error[0];
      const Lanes least = is_above ? error[1] : error[0], best_min = is_above ? min[1] : min[0];
      const size_t lane = index_of_largest(-least);
      codes.scale[g] = scale[lane];
      codes.min[g] = best_min[lane];
      codes.error += least[lane];
    }
  }

  void group_errors(size_t g, Lanes d, Lanes m0, Lanes m1, Lanes (&error)[2]) const {
    const float* x = x_ + g * kGroupElems;
    const float* w = w_.data() + g * kGroupElems;
    const Lanes inverse = inverse_scales(d), zero{}, top = all_lanes(kMaxCode), m[2] = {m0, m1};
    error[0] = error[1] = zero;
    for (size_t i = 0; i < kGroupElems; ++i) {
      const Lanes xi = all_lanes(x[i]), wi = all_lanes(w[i]);
      for (size_t k = 0; k < 2; ++k) {
        const Lanes y = xi + m[k];
        const Lanes q = round_lanes(min_lanes(top, max_lanes(zero, y * inverse)));
        const Lanes e = y - d * q;
        error[k] += wi * e * e;
      }
    }
  }

  static Lanes code(Lanes x, float m, float inverse) {
    return round_lanes(min_lanes(all_lanes(kMaxCode), max_lanes(Lanes{}, (x + m) * inverse)));
  }

  // d and dmin by least squares for the codes that these scales give.
  void refit(Codes& codes) {
    double ss = 0, sk = 0, kk = 0, sx = 0, kx = 0;
    for (size_t g = 0; g < kGroups; ++g) {
      const float inverse = inverse_scale(codes.d * codes.scale[g]), m = codes.dmin * codes.min[g];
      Lanes a{}, b{}, c{}, p{}, r{};
      for (size_t i = g * kGroupElems; i < (g + 1) * kGroupElems; i += kLanes) {
        const Lanes x = load_lanes(x_ + i), w = load_lanes(&w_[i]), q = code(x, m, inverse), wq = w * q;
        a += wq * q;
        b += wq;
        c += w;
        p += wq * x;
        r += w * x;
      }
      const double s = codes.scale[g], k = codes.min[g];
      ss += s * s * sum(a);
      sk += s * k * sum(b);
      kk += k * k * sum(c);
      sx += s * sum(p);
      kx += k * sum(r);
    }
    const double determinant = ss * kk - sk * sk;
    double d = codes.d, dmin = codes.dmin;
    if (determinant > 1e-12 * ss * kk) {
      d = (sx * kk - kx * sk) / determinant;
      dmin = (sx * sk - kx * ss) / determinant;
    } else if (ss > 0) {
      d = (sx + dmin * sk) / ss;
    }
    if (d > 0) codes.d = half_to_float(scale_to_half(static_cast<float>(d)));
    if (dmin >= 0) codes.dmin = half_to_float(scale_to_half(static_cast<float>(dmin)));
  }

  Result pack(const Codes& codes) const {
    std::array<int32_t, kElems> wide;
    Result result{.d = float_to_half(codes.d), .dmin = float_to_half(codes.dmin)};
    for (size_t g = 0; g < kGroups; ++g) {
      result.scale[g] = static_cast<uint8_t>(codes.scale[g]);
      result.min[g] = static_cast<uint8_t>(codes.min[g]);
      const float inverse = inverse_scale(codes.d * codes.scale[g]), m = codes.dmin * codes.min[g];
      for (size_t i = g * kGroupElems; i < (g + 1) * kGroupElems; i += kLanes) {
        const Lanes q = code(load_lanes(x_ + i), m, inverse);
        store_lanes(to_integers(q), &wide[i]);
      }
    }
    for (size_t i = 0; i < kElems; ++i) result.q[i] = static_cast<uint8_t>(wide[i]);
    return result;
  }

  const float* x_;
  std::array<float, kElems> w_;
  std::array<Line, kGroups> lines_;
};

}  // namespace zinc
