// The exact nearest point of a codebook (grid) under a weighted norm, by branch and bound over the two halves of a
// point's coordinates. A coordinate has few levels, so half a point is one of 81 or 64 patterns, and the error of a
// point is the sum of its halves' errors, each from a table. A half that is too bad even next to the best conceivable
// other half is left out, which is nearly all of them.
//
// The error sum w (x - s g)^2 = sum w x^2 - s (2 p - s q) with p = sum w x g and q = sum w g^2: a point's (p, q) tells
// its error at every scale s.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "quantize/lanes.h"

namespace zinc {

// A point for a group of elements, as a function of the scale.
struct PointSums {
  float p = 0;
  float q = 0;
  uint32_t point = 0;  // left pattern + right pattern << 8 + variant << 16

  // What the point takes off the error at scale s, divided by s. REQUIRES: s > 0.
  float gain(float s) const { return 2 * p - s * q; }
};

template <size_t dims, size_t levels>
class GridIndex {
 public:
  static constexpr size_t kDims = dims;
  static constexpr size_t kLevels = levels;
  static constexpr size_t kHalf = dims / 2;
  static constexpr size_t kPatterns = kHalf == 4 ? levels * levels * levels * levels : levels * levels;
  static constexpr size_t kWords = (kPatterns + 31) / 32;
  static constexpr size_t kPadded = kWords * 32;

  template <size_t n_points>
  explicit GridIndex(const std::array<std::array<int8_t, dims>, n_points>& grid) {
    std::array<bool, 256> is_level{};
    for (const auto& point : grid) {
      for (const int8_t g : point) is_level[static_cast<uint8_t>(g + 128)] = true;
    }
    size_t n = 0;
    std::array<uint8_t, 256> digit{};
    for (size_t i = 0; i < 256; ++i) {
      if (!is_level[i]) continue;
      digit[i] = static_cast<uint8_t>(n);
      level_[n++] = static_cast<float>(static_cast<int>(i) - 128);
    }
    for (size_t code = 0; code < n_points; ++code) {
      std::array<size_t, 2> pattern{};
      for (size_t j = dims; j-- > 0;) {
        size_t& half = pattern[j / kHalf];
        half = half * levels + digit[static_cast<uint8_t>(grid[code][j] + 128)];
      }
      partners_[pattern[0]][pattern[1] / 32] |= 1u << pattern[1] % 32;
      code_[pattern[0] * kPatterns + pattern[1]] = static_cast<uint16_t>(code);
    }
  }

  const std::array<float, levels>& level() const { return level_; }
  uint16_t code(const PointSums& sums) const { return code_[(sums.point & 255) * kPatterns + (sums.point >> 8 & 255)]; }
  const std::array<uint32_t, kWords>& partners(size_t left) const { return partners_[left]; }

 private:
  std::array<float, levels> level_{};                             // ascending
  std::array<std::array<uint32_t, kWords>, kPadded> partners_{};  // right halves in the grid with a left half
  std::array<uint16_t, kPatterns * kPatterns> code_{};
};

// The tables of one group of elements.
template <class Index>
class GridSearch {
 public:
  // wx[j] is w x; `delta` is added to each coordinate of the grid. `variant` marks the points found here.
  void fill(const Index& index, const float* w, const float* wx, float delta, uint32_t variant) {
    variant_ = variant << 16;
    for (size_t l = 0; l < Index::kLevels; ++l) {
      const float g = index.level()[l] + delta;
      for (size_t j = 0; j < Index::kDims; ++j) {
        p_of_level_[l][j] = wx[j] * g;
        q_of_level_[l][j] = w[j] * g * g;
      }
    }
  }

  // REQUIRES, for start() and best(): called after fill().
  void fill_patterns() {
    for (size_t half = 0; half < 2; ++half) {
      sum_patterns(p_of_level_, half, p_[half]);
      sum_patterns(q_of_level_, half, q_[half]);
      for (size_t i = Index::kPatterns; i < Index::kPadded; ++i) {
        p_[half][i] = kNever;
        q_[half][i] = 0;
      }
    }
  }

  // The gain of each half at scale s if every pattern were in the grid.
  std::array<float, 2> unconstrained(float s) const {
    std::array<float, Index::kDims> best;
    for (size_t j = 0; j < Index::kDims; ++j) best[j] = 2 * p_of_level_[0][j] - s * q_of_level_[0][j];
    for (size_t l = 1; l < Index::kLevels; ++l) {
      for (size_t j = 0; j < Index::kDims; ++j) {
        const float gain = 2 * p_of_level_[l][j] - s * q_of_level_[l][j];
        best[j] = best[j] > gain ? best[j] : gain;
      }
    }
    std::array<float, 2> sum{};
    for (size_t j = 0; j < Index::kDims; ++j) sum[j / Index::kHalf] += best[j];
    return sum;
  }

  // The best point at scale s. `start`: a point of the grid, the better the faster.
  PointSums best(const Index& index, float s, const PointSums& start) const {
    const std::array<float, 2> bound = unconstrained(s);
    PointSums best = start;
    float best_gain = start.gain(s);
    const Mask left = better_than(0, s, best_gain - bound[1]);
    const Mask right = better_than(1, s, best_gain - bound[0]);
    for (size_t left_word = 0; left_word < Index::kWords; ++left_word) {
      for (uint32_t left_bits = left[left_word]; left_bits != 0; left_bits &= left_bits - 1) {
        const size_t l = left_word * 32 + static_cast<size_t>(std::countr_zero(left_bits));
        const float left_gain = 2 * p_[0][l] - s * q_[0][l];
        if (left_gain + bound[1] <= best_gain) continue;
        const auto& partners = index.partners(l);
        for (size_t word = 0; word < Index::kWords; ++word) {
          for (uint32_t bits = partners[word] & right[word]; bits != 0; bits &= bits - 1) {
            const size_t r = word * 32 + static_cast<size_t>(std::countr_zero(bits));
            const float gain = left_gain + (2 * p_[1][r] - s * q_[1][r]);
            if (gain > best_gain) {
              best_gain = gain;
              best = {p_[0][l] + p_[1][r], q_[0][l] + q_[1][r], static_cast<uint32_t>(l | r << 8) | variant_};
            }
          }
        }
      }
    }
    return best;
  }

  // Some point of the grid that is near the best one at scale s.
  PointSums start(const Index& index, float s) const {
    size_t left = 0;
    for (size_t j = Index::kHalf; j-- > 0;) {
      size_t best = 0;
      for (size_t l = 1; l < Index::kLevels; ++l) {
        const auto gain = [&](size_t level) { return 2 * p_of_level_[level][j] - s * q_of_level_[level][j]; };
        if (gain(l) > gain(best)) best = l;
      }
      left = left * Index::kLevels + best;
    }
    PointSums best{kNever, 0, 0};
    for (size_t word = 0; word < Index::kWords; ++word) {
      for (uint32_t bits = index.partners(left)[word]; bits != 0; bits &= bits - 1) {
        const size_t r = word * 32 + static_cast<size_t>(std::countr_zero(bits));
        const PointSums sums{p_[0][left] + p_[1][r], q_[0][left] + q_[1][r],
                             static_cast<uint32_t>(left | r << 8) | variant_};
        if (sums.gain(s) > best.gain(s)) best = sums;
      }
    }
    return best;
  }

 private:
  using Mask = std::array<uint32_t, Index::kWords>;
  using Levels = std::array<std::array<float, Index::kDims>, Index::kLevels>;
  using Patterns = std::array<float, Index::kPadded>;
  static constexpr float kNever = -1e30F;

  static void sum_patterns(const Levels& of_level, size_t half, Patterns& out) {
    out[0] = 0;
    size_t n = 1;
    for (size_t j = half * Index::kHalf; j < (half + 1) * Index::kHalf; ++j) {
      for (size_t l = Index::kLevels; l-- > 0;) {
        const float x = of_level[l][j];
        for (size_t i = 0; i < n; ++i) out[l * n + i] = out[i] + x;
      }
      n *= Index::kLevels;
    }
  }

  // The patterns of a half with a gain above `limit`, as bits.
  Mask better_than(size_t half, float s, float limit) const {
    using Bits = uint32_t __attribute__((vector_size(16)));
    Mask mask;
    const Lanes scale = all_lanes(s);
    const Lanes limits = all_lanes(limit);
    for (size_t word = 0; word < Index::kWords; ++word) {
      Bits bits{};
      for (size_t i = 0; i < 8; ++i) {
        const size_t at = word * 32 + i * 4;
        const Lanes p = load_lanes(&p_[half][at]);
        const Lanes gain = (p + p) - scale * load_lanes(&q_[half][at]);
        bits |= reinterpret_cast<Bits>(gain > limits) & (Bits{1, 2, 4, 8} << static_cast<uint32_t>(i * 4));
      }
      mask[word] = bits[0] | bits[1] | bits[2] | bits[3];
    }
    return mask;
  }

  uint32_t variant_ = 0;
  Levels p_of_level_;
  Levels q_of_level_;
  std::array<Patterns, 2> p_;
  std::array<Patterns, 2> q_;
};

}  // namespace zinc
