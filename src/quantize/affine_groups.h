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
#include <cstring>
#include <iterator>
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
    Codes best = first_codes();
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

  // How much steeper than max - min the codes may rise: the candidates kMaxCode + kFirst, ... + kLast.
  static constexpr size_t kCandidates = 24;
  static constexpr float kFirst = -1.0F, kLast = kMaxCode > 3 ? 1.6F : 1.1F;
  static constexpr int kRounds = 2;

  static Line fit_line(const float* x, const float* w) {
    float low = 0, high = x[0];
    for (size_t i = 0; i < kGroupElems; ++i) {
      low = std::min(low, x[i]);
      high = std::max(high, x[i]);
    }
    if (!(high > low)) return {.m = -low, .c = 1};
    float y[kGroupElems], wy[kGroupElems];
    float sw = 0, swy = 0, swyy = 0;
    for (size_t i = 0; i < kGroupElems; ++i) {
      y[i] = x[i] - low;
      wy[i] = w[i] * y[i];
      sw += w[i];
      swy += wy[i];
      swyy += wy[i] * y[i];
    }
    Line best;
    float best_error = swyy * 2;
    constexpr float kStep = (kLast - kFirst) / (kCandidates - 1);
    const float per_range = 1 / (high - low);
    float inverse[kCandidates];
    for (size_t i = 0; i < kCandidates; ++i) inverse[i] = (kMaxCode + kFirst + kStep * static_cast<float>(i)) * per_range;
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
        for (size_t lane = 0; lane < kLanes; ++lane) {
          const float la = a[k][lane], lb = b[k][lane], lp = p[k][lane];
          const float determinant = sw * la - lb * lb;
          if (!(determinant > 0)) continue;
          float d = (sw * lp - swy * lb) / determinant;
          float m = (lb * lp - la * swy) / determinant;  // y = d q - m
          float error = swyy - d * lp + m * swy;
          if (m - low < 0) {  // x = d q - (m - low): no negative minimum can be stored
            m = low;
            d = (lp + m * lb) / la;
            error = swyy + 2 * m * swy + m * m * sw - d * (lp + m * lb);
          }
          if (error < best_error && d > 0) {
            best_error = error;
            best = {.d = d, .m = m - low, .a = la, .b = lb, .c = sw};
          }
        }
      }
    }
    return best;
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

  Codes first_codes() const {
    std::array<float, kGroups> values, costs;
    for (size_t g = 0; g < kGroups; ++g) {
      values[g] = lines_[g].d;
      costs[g] = lines_[g].a;
    }
    Codes codes{};
    codes.d = half_to_float(scale_to_half(fit_step(values, costs)));
    const float inverse = inverse_scale(codes.d);
    for (size_t g = 0; g < kGroups; ++g) codes.scale[g] = lines_[g].d * inverse;
    for (size_t g = 0; g < kGroups; ++g) {  // the minimum that suits the rounded scale
      const float scale = std::min<float>(kMaxScale, round_to_integer(std::min<float>(kMaxScale, codes.scale[g])));
      values[g] = std::max(0.0F, best_min(lines_[g], scale * codes.d));
      costs[g] = lines_[g].c;
    }
    codes.dmin = half_to_float(scale_to_half(fit_step(values, costs)));
    return codes;
  }

  static float best_min(const Line& line, float d) { return line.m + (d - line.d) * line.b / line.c; }

  // For given d and dmin: the integer scale and minimum of each group, among those around its line.
  void choose_group_scales(Codes& codes) const {
    const float inverse_d = inverse_scale(codes.d), inverse_dmin = inverse_scale(codes.dmin);
    codes.error = 0;
    for (size_t g = 0; g < kGroups; ++g) {
      const Line& line = lines_[g];
      float scale[2 * kLanes], min[2 * kLanes], error[2 * kLanes];
      const float first = std::floor(std::min<float>(kMaxScale, line.d * inverse_d)) - 1;
      for (size_t i = 0; i < kLanes; ++i) {
        const float s = std::clamp<float>(first + static_cast<float>(i), 0, kMaxScale);
        const float exact = std::max(0.0F, best_min(line, s * codes.d)) * inverse_dmin;
        const float below = std::floor(std::min<float>(kMaxScale, exact));
        scale[i] = scale[kLanes + i] = s;
        min[i] = below;
        min[kLanes + i] = std::min<float>(kMaxScale, below + 1);
      }
      group_errors(g, codes, scale, min, error);
      const auto least = static_cast<size_t>(std::min_element(std::begin(error), std::end(error)) - error);
      codes.scale[g] = scale[least];
      codes.min[g] = min[least];
      codes.error += error[least];
    }
  }

  using Eight = float[2 * kLanes];
  void group_errors(size_t g, const Codes& codes, const Eight& scale, const Eight& min, Eight& errors) const {
    const float* x = x_ + g * kGroupElems;
    const float* w = w_.data() + g * kGroupElems;
    float inverses[2 * kLanes];
    for (size_t i = 0; i < 2 * kLanes; ++i) inverses[i] = inverse_scale(scale[i] * codes.d);
    Lanes d[2], inverse[2], m[2], error[2];
    for (size_t k = 0; k < 2; ++k) {
      d[k] = load_lanes(scale + k * kLanes) * codes.d;
      m[k] = load_lanes(min + k * kLanes) * codes.dmin;
      inverse[k] = load_lanes(inverses + k * kLanes);
      error[k] = Lanes{};
    }
    const Lanes zero{}, top = all_lanes(kMaxCode);
    for (size_t i = 0; i < kGroupElems; ++i) {
      const Lanes xi = all_lanes(x[i]), wi = all_lanes(w[i]);
      for (size_t k = 0; k < 2; ++k) {
        const Lanes y = xi + m[k];
        const Lanes q = round_lanes(min_lanes(top, max_lanes(zero, y * inverse[k])));
        const Lanes e = y - d[k] * q;
        error[k] += wi * e * e;
      }
    }
    std::memcpy(errors, error, sizeof(error));
  }

  static float code(float x, float m, float inverse) {
    return round_to_integer(std::min<float>(kMaxCode, std::max(0.0F, (x + m) * inverse)));
  }

  // d and dmin by least squares for the codes that these scales give.
  void refit(Codes& codes) {
    double ss = 0, sk = 0, kk = 0, sx = 0, kx = 0;
    for (size_t g = 0; g < kGroups; ++g) {
      const float inverse = inverse_scale(codes.d * codes.scale[g]), m = codes.dmin * codes.min[g];
      float a = 0, b = 0, c = 0, p = 0, r = 0;
      for (size_t i = g * kGroupElems; i < (g + 1) * kGroupElems; ++i) {
        const float q = code(x_[i], m, inverse);
        const float wq = w_[i] * q;
        a += wq * q;
        b += wq;
        c += w_[i];
        p += wq * x_[i];
        r += w_[i] * x_[i];
      }
      const double s = codes.scale[g], k = codes.min[g];
      ss += s * s * a;
      sk += s * k * b;
      kk += k * k * c;
      sx += s * p;
      kx += k * r;
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
    Result result{.d = float_to_half(codes.d), .dmin = float_to_half(codes.dmin)};
    for (size_t g = 0; g < kGroups; ++g) {
      result.scale[g] = static_cast<uint8_t>(codes.scale[g]);
      result.min[g] = static_cast<uint8_t>(codes.min[g]);
      const float inverse = inverse_scale(codes.d * codes.scale[g]), m = codes.dmin * codes.min[g];
      for (size_t i = g * kGroupElems; i < (g + 1) * kGroupElems; ++i) {
        result.q[i] = static_cast<uint8_t>(static_cast<int>(code(x_[i], m, inverse)));
      }
    }
    return result;
  }

  const float* x_;
  std::array<float, kElems> w_;
  std::array<Line, kGroups> lines_;
};

}  // namespace zinc
