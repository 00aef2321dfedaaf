// The searches of ggml's formats of 32 elements with one scale, with the sums in the order in which llama.cpp's
// quantizer adds them: the blocks are equal bit for bit, so files of both programs can be compared. Lanes are
// candidates.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "quantize/lanes.h"
#include "quantize/row_weights.h"
#include "quantize/scale_search.h"
#include "tensor/half.h"

namespace zinc {

inline constexpr size_t kLegacyElems = 32;

struct LegacyBlock {
  uint16_t d = 0, m = 0;  // f16: d q + m
  std::array<uint8_t, kLegacyElems> q{};
};

// f16, finite also where the value is not. Zero is positive: the compiler may take either in this folder.
inline uint16_t clamped_half(float value) {
  constexpr uint32_t kExponent = 0x7F800000;  // all ones: infinite or not a number
  if (value == 0 || (std::bit_cast<uint32_t>(value) & kExponent) == kExponent) return 0;
  return float_to_half(std::clamp(value, -kLargestHalf, kLargestHalf));
}

// Five-bit codes: the low four as in Q4_0, the fifth of code i in bit i of `high`, little-endian.
inline void pack_fifth_bits(const LegacyBlock& from, uint8_t (&high)[4], uint8_t (&q)[16]) {
  for (size_t byte = 0; byte < 4; ++byte) {  // a multiplication moves bit 0 of byte k to bit 56 + k
    uint64_t eight;
    std::memcpy(&eight, &from.q[byte * 8], sizeof(eight));
    high[byte] = static_cast<uint8_t>((eight >> 4 & 0x0101010101010101) * 0x0102040810204080 >> 56);
  }
  for (size_t j = 0; j < 16; ++j) q[j] = static_cast<uint8_t>((from.q[j] & 15) | (from.q[j + 16] & 15) << 4);
}

// The first of the elements of largest magnitude.
inline float first_largest(const float* x) {
  const float largest = largest_magnitude<kLegacyElems>(x);
  const float* first = std::find_if(x, x + kLegacyElems, [&](float v) { return std::abs(v) == std::abs(largest); });
  return first == x + kLegacyElems ? 0 : *first;
}

// Without importance: d (q - kTop), the largest magnitude becomes -kTop, halves are rounded up.
template <int kTop>
LegacyBlock legacy_symmetric(const float* x) {
  constexpr uint16_t kNegativeZero = 0x8000;  // 0 / -kTop
  const float d = first_largest(x) / -kTop;
  const float inverse = std::abs(d) < 1e-38F ? 0 : 1 / d;
  LegacyBlock block;
  block.d = d == 0 ? kNegativeZero : clamped_half(d);
  for (size_t i = 0; i < kLegacyElems; ++i) {
    const float q = std::clamp<float>(x[i] * inverse + (kTop + 0.5F), 0, 2 * kTop - 1);
    block.q[i] = static_cast<uint8_t>(static_cast<int>(q));
  }
  return block;
}

// Without importance: d q + m, from the least to the largest element, halves are rounded up.
template <int kTop>
LegacyBlock legacy_affine(const float* x) {
  Lanes low = load_lanes(x), high = low;
  for (size_t i = kLanes; i < kLegacyElems; i += kLanes) {
    low = min_lanes(low, load_lanes(x + i));
    high = max_lanes(high, load_lanes(x + i));
  }
  const float m = std::clamp(least(low), -kLargestHalf, kLargestHalf);
  const float d = (largest(high) - m) / kTop;
  const float inverse = std::abs(d) < 1e-38F ? 0 : 1 / d;
  LegacyBlock block;
  block.d = clamped_half(d);
  block.m = clamped_half(m);
  for (size_t i = 0; i < kLegacyElems; ++i) {
    const float q = std::clamp<float>((x[i] - m) * inverse + 0.5F, 0, kTop);
    block.q[i] = static_cast<uint8_t>(static_cast<int>(q));
  }
  return block;
}

// With weights: 19 candidates for 1 / d around -kTop / largest; the first is the middle one.
template <int kTop>
LegacyBlock legacy_weighted_symmetric(const float* x, const float* w) {
  LegacyBlock block;
  const float largest = first_largest(x);
  if (!(std::abs(largest) >= 1e-15F)) return block;
  constexpr int kSteps = 9;
  constexpr size_t kCandidates = 2 * kSteps + 1, kPadded = 24;
  float inverse[kPadded] = {-kTop / largest};
  size_t n = 1;
  for (int step = -kSteps; step <= kSteps; ++step) {
    if (step != 0) inverse[n++] = -(kTop + 0.1F * static_cast<float>(step)) / largest;
  }
  float wx[kLegacyElems], p[kPadded], a[kPadded];
  for (size_t i = 0; i < kLegacyElems; ++i) wx[i] = w[i] * x[i];
  const auto code = [](Lanes scaled) { return clamp_lanes(round_lanes(scaled), -kTop, kTop - 1); };
  for (size_t c = 0; c < kPadded; c += 2 * kLanes) {
    const Lanes by[2] = {load_lanes(inverse + c), load_lanes(inverse + c + kLanes)};
    Lanes ps[2] = {}, as[2] = {};
    for (size_t i = 0; i < kLegacyElems; ++i) {
      const Lanes xi = all_lanes(x[i]), wi = all_lanes(w[i]), wxi = all_lanes(wx[i]);
      for (size_t k = 0; k < 2; ++k) {
        const Lanes q = code(xi * by[k]);
        ps[k] += wxi * q;
        as[k] += wi * q * q;
      }
    }
    std::memcpy(p + c, ps, sizeof(ps));
    std::memcpy(a + c, as, sizeof(as));
  }
  if (!(a[0] > 0)) return legacy_symmetric<kTop>(x);  // no importance in this block
  float d = p[0] / a[0], best = d * p[0], best_inverse = inverse[0];
  for (size_t c = 1; c < kCandidates; ++c) {
    if (!(a[c] > 0 && p[c] * p[c] > best * a[c])) continue;
    d = p[c] / a[c];
    best = d * p[c];
    best_inverse = inverse[c];
  }
  block.d = clamped_half(d);
  for (size_t i = 0; i < kLegacyElems; i += kLanes) {
    const Lanes q = code(load_lanes(x + i) * best_inverse);
    for (size_t lane = 0; lane < kLanes; ++lane)
      block.q[i + lane] = static_cast<uint8_t>(static_cast<int>(q[lane]) + kTop);
  }
  return block;
}

// With weights: candidates for 1 / d, for each the least-squares line through its codes, m <= 0. Codes count from the
// minimum of the best line so far, so a better line changes the candidates after it: those of a batch behind it are
// computed again.
template <int kTop>
class LegacyWeightedAffine {
 public:
  static LegacyBlock quantize(const float* x, const float* w) {
    LegacyWeightedAffine search(x, w);
    return search.solve();
  }

 private:
  static constexpr size_t kSteps = 37, kBatch = 2 * kLanes;
  struct Batch {
    float inverse[kBatch], d[kBatch], m[kBatch], determinant[kBatch], error[kBatch];
  };

  LegacyWeightedAffine(const float* x, const float* w) : x_(x), w_(w) {
    low_ = high_ = x[0];
    for (size_t i = 0; i < kLegacyElems; ++i) {
      low_ = std::min(low_, x[i]);
      high_ = std::max(high_, x[i]);
      sw_ += w[i];
      swx_ += w[i] * x[i];
    }
    low_ = std::clamp(low_, -kLargestHalf, 0.0F);
  }

  LegacyBlock solve() {
    LegacyBlock block;
    block.m = clamped_half(low_);
    if (!(high_ > low_)) return block;
    float best_inverse = kTop / (high_ - low_), best_low = low_;
    float d = 1 / best_inverse, least_error = error_of(best_inverse, d);
    for (size_t step = 0; step < kSteps;) {
      Batch batch;
      evaluate(step, batch);
      const size_t n = std::min(kBatch, kSteps - step);
      size_t i = 0;
      while (i < n && !(batch.determinant[i] > 0 && batch.error[i] < least_error)) ++i;
      step += std::min(i + 1, n);
      if (i == n) continue;
      best_inverse = batch.inverse[i];
      best_low = low_;
      d = batch.d[i];
      low_ = batch.m[i];
      least_error = batch.error[i];
    }
    block.d = clamped_half(d);
    block.m = clamped_half(low_);
    for (size_t i = 0; i < kLegacyElems; i += kLanes) {
      const Lanes q = code(load_lanes(x_ + i), best_low, all_lanes(best_inverse));
      for (size_t lane = 0; lane < kLanes; ++lane) block.q[i + lane] = static_cast<uint8_t>(static_cast<int>(q[lane]));
    }
    return block;
  }

  static Lanes code(Lanes x, float low, Lanes by) { return clamp_lanes(round_lanes(by * (x - low)), 0, kTop); }

  // Of the line from the least to the largest element.
  float error_of(float inverse, float d) const {
    float error = 0;
    for (size_t i = 0; i < kLegacyElems; i += kLanes) {
      const Lanes x = load_lanes(x_ + i), e = d * code(x, low_, all_lanes(inverse)) + low_ - x;
      const Lanes we = load_lanes(w_ + i) * (e * e);
      for (size_t lane = 0; lane < kLanes; ++lane) error += we[lane];
    }
    return error;
  }

  void evaluate(size_t step, Batch& batch) const {
    const float range = high_ - low_;
    for (size_t c = 0; c < kBatch; ++c) {
      batch.inverse[c] = (-0.9F + 0.05F * static_cast<float>(step + c) + kTop) / range;
    }
    const Lanes by[2] = {load_lanes(batch.inverse), load_lanes(batch.inverse + kLanes)};
    Lanes q_sum[2] = {}, qq_sum[2] = {}, xq_sum[2] = {};
    for (size_t i = 0; i < kLegacyElems; ++i) {
      const Lanes x = all_lanes(x_[i]), w = all_lanes(w_[i]);
      for (size_t k = 0; k < 2; ++k) {
        const Lanes q = code(x, low_, by[k]), wq = w * q;
        q_sum[k] += wq;
        qq_sum[k] += wq * q;
        xq_sum[k] += wq * x;
      }
    }
    Lanes d[2], m[2], determinant[2], error[2] = {};
    for (size_t k = 0; k < 2; ++k) {
      determinant[k] = sw_ * qq_sum[k] - q_sum[k] * q_sum[k];
      const Lanes divisor = max_lanes(determinant[k], all_lanes(1e-37F));
      const Lanes fit_m = (qq_sum[k] * swx_ - q_sum[k] * xq_sum[k]) / divisor;
      const auto is_positive = fit_m > 0.0F;
      d[k] = is_positive ? xq_sum[k] / max_lanes(qq_sum[k], all_lanes(1e-37F))
                         : (sw_ * xq_sum[k] - swx_ * q_sum[k]) / divisor;
      m[k] = is_positive ? Lanes{} : fit_m;
    }
    for (size_t i = 0; i < kLegacyElems; ++i) {
      const Lanes x = all_lanes(x_[i]), w = all_lanes(w_[i]);
      for (size_t k = 0; k < 2; ++k) {
        const Lanes e = d[k] * code(x, low_, by[k]) + m[k] - x;
        error[k] += w * (e * e);
      }
    }
    std::memcpy(batch.d, d, sizeof(d));
    std::memcpy(batch.m, m, sizeof(m));
    std::memcpy(batch.determinant, determinant, sizeof(determinant));
    std::memcpy(batch.error, error, sizeof(error));
  }

  const float* x_;
  const float* w_;
  float low_, high_, sw_ = 0, swx_ = 0;
};

// The blocks of a row; with importance, weights are importance * sqrt(mean of the row's x^2 + x^2).
template <class Block, LegacyBlock (*plain)(const float*), LegacyBlock (*weighted)(const float*, const float*),
          Block (*pack)(const LegacyBlock&)>
void quantize_legacy(std::span<const float> row, std::span<const float> importance, std::span<std::byte> blocks) {
  ZINC_CHECK(row.size() % kLegacyElems == 0 && row.size() / kLegacyElems * sizeof(Block) == blocks.size());
  ZINC_CHECK(importance.empty() || importance.size() == row.size());
  const auto cut = [](float x) { return std::min(kLargestWeight, std::max(-kLargestWeight, x)); };
  float sigma2 = 0;
  if (!importance.empty()) {
    for (const float x : row) sigma2 += cut(x) * cut(x);
    sigma2 /= static_cast<float>(row.size());
  }
  for (size_t begin = 0; begin < row.size(); begin += kLegacyElems) {
    float x[kLegacyElems];
    for (size_t i = 0; i < kLegacyElems; ++i) x[i] = cut(row[begin + i]);
    LegacyBlock best;
    if (importance.empty()) {
      best = plain(x);
    } else {
      float w[kLegacyElems];
      for (size_t i = 0; i < kLegacyElems; ++i) w[i] = importance[begin + i] * std::sqrt(sigma2 + x[i] * x[i]);
      best = weighted(x, w);
    }
    const Block block = pack(best);
    std::memcpy(blocks.data() + begin / kLegacyElems * sizeof(Block), &block, sizeof(Block));
  }
}

}  // namespace zinc
