// The search for a block of 256 elements of the IQ1, IQ2 and IQ3 formats: sub-blocks with a scale d * (2 c + 1) each,
// every group of 4 or 8 elements a point of a grid. First each sub-block alone at a few scales; then the d for which
// the scales that can be stored lose least; then the nearest points and neighbouring scales again at that d, and d
// once more by least squares.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quantize/grid_index.h"
#include "quantize/row_weights.h"
#include "tensor/half.h"

namespace zinc {

enum class GridSigns : uint8_t {
  kFree,    // a sign per element
  kParity,  // per 8 elements an even number of negative ones
  kInGrid,  // the grid has negative coordinates
};

// IQ1: 1/8 is added to the coordinates of a point or subtracted from them.
enum class GridDelta : uint8_t {
  kNone,
  kPerSubBlock,
  kPerGroup,
};

// What a block stores. Groups in the order of the elements.
template <size_t n_groups, size_t n_sub_blocks>
struct GridCodes {
  uint16_t d = 0;                             // f16
  std::array<uint8_t, n_sub_blocks> scale{};  // c
  std::array<uint16_t, n_groups> code{};      // index in the grid
  std::array<uint8_t, 32> signs{};            // of 8 elements each
  std::array<bool, n_groups> has_negative_delta{};
};

// Shape: Index; kSigns; kDelta; kSubBlocks; kScaleCodes; kUnit: a coordinate counts d * kUnit * (2 c + 1);
// kTypicalCoordinate: what the root mean square of a sub-block becomes, roughly; kScales: the scales tried for a
// sub-block, relative to a first guess; kSigma2Factor: of RowWeights.
template <class Shape>
class GridBlock {
 public:
  using Index = typename Shape::Index;
  static constexpr size_t kElems = 256;
  static constexpr size_t kDims = Index::kDims;
  static constexpr size_t kGroups = kElems / kDims;
  static constexpr size_t kSubBlocks = Shape::kSubBlocks;
  static constexpr size_t kGroupsPerSubBlock = kGroups / kSubBlocks;
  static constexpr size_t kVariants = Shape::kDelta == GridDelta::kNone ? 1 : 2;
  using Codes = GridCodes<kGroups, kSubBlocks>;

  static Codes quantize(const Index& index, std::span<const float, kElems> x, const RowWeights& importance,
                        size_t begin) {
    GridBlock block(index);
    block.fill(x, importance, begin);
    block.search_scales();
    return block.codes();
  }

 private:
  static constexpr size_t kElemsPerSubBlock = kElems / kSubBlocks;
  static constexpr std::array<float, 2> kVariantDeltas =
      Shape::kDelta == GridDelta::kNone ? std::array{0.0F, 0.0F} : std::array{0.125F, -0.125F};
  static constexpr size_t kMaxTried = 16;
  static constexpr float kMaxMultiplier = 2 * Shape::kScaleCodes - 1;
  // Scales of a sub-block: rms / kTypicalCoordinate times these, if every point were in the grid; then the best of them
  // times Shape::kScales with the points that are.
  static constexpr float kUnconstrainedScales[] = {0.65F, 0.75F, 0.85F, 0.95F, 1.05F, 1.15F, 1.3F, 1.45F, 1.6F, 1.75F};
  // Elements of about the same magnitude fit a grid best at one of its levels, which need not be a typical one.
  static constexpr float kFlat = 1.4F;
  // Multipliers of the largest scale of a sub-block, relative to the largest that can be stored.
  static constexpr float kTopMultipliers[] = {0.7F, 0.76F, 0.82F, 0.88F, 0.92F, 0.96F, 1.0F, 1.04F, 1.08F, 1.14F};

  struct Tried {  // points that were best at some scale
    std::array<PointSums, kMaxTried> points;
    size_t n = 0;

    const PointSums& best(float s) const {
      size_t best = 0;
      for (size_t i = 1; i < n; ++i) {
        if (points[i].gain(s) > points[best].gain(s)) best = i;
      }
      return points[best];
    }
    void add(const PointSums& point) {
      if (n < kMaxTried) points[n++] = point;
    }
  };
  struct Group {
    std::array<GridSearch<Index>, kVariants> search;
    std::array<Tried, kVariants> tried;
    PointSums best;  // at the last scale
  };
  struct Sums {
    float p = 0;
    float q = 0;
    float gain(float s) const { return s * (2 * p - s * q); }
    float best_gain() const { return p * best_scale(); }
    float best_scale() const { return p > 0 && q > 0 ? p / q : 0; }
  };
  struct SubBlock {
    float rms = 0;  // with the weights of the errors
    float max = 0;
    float scale = 0;
    size_t c = 0;
    Sums sums;  // at scale code c
    size_t first_variant = 0;
    size_t end_variant = kVariants;
  };

  explicit GridBlock(const Index& index) : index_(index) {}

  static constexpr float multiplier(size_t c) { return static_cast<float>(2 * c + 1); }

  void fill(std::span<const float, kElems> x, const RowWeights& importance, size_t begin) {
    x_ = x.data();
    importance.fill<kElems>(x, begin, Shape::kSigma2Factor, w_);
    if constexpr (Shape::kSigns != GridSigns::kInGrid) {
      for (size_t i = 0; i < kElems; i += 8) take_signs(i);
    }
    alignas(64) std::array<float, kElems> wx;
    for (size_t i = 0; i < kElems; ++i) wx[i] = w_[i] * (is_flipped_[i] != 0 ? -x[i] : x[i]);
    for (size_t b = 0; b < kSubBlocks; ++b) {
      float sum_w = 0;
      float sum_wx2 = 0;
      for (size_t i = b * kElemsPerSubBlock; i < (b + 1) * kElemsPerSubBlock; ++i) {
        sum_w += w_[i];
        sum_wx2 += w_[i] * x[i] * x[i];
        sub_blocks_[b].max = std::max(sub_blocks_[b].max, std::abs(x[i]));
      }
      sub_blocks_[b].rms = sum_w > 0 ? std::sqrt(sum_wx2 / sum_w) : 0;
    }
    for (size_t g = 0; g < kGroups; ++g) {
      Group& group = groups_[g];
      for (size_t v = 0; v < kVariants; ++v) {
        group.search[v].fill(index_, &w_[g * kDims], &wx[g * kDims], kVariantDeltas[v], static_cast<uint32_t>(v));
      }
    }
  }

  void take_signs(size_t begin) {
    uint8_t bits = 0;
    for (size_t j = 0; j < 8; ++j) {
      is_flipped_[begin + j] = x_[begin + j] < 0;
      bits = static_cast<uint8_t>(bits | is_flipped_[begin + j] << j);
    }
    if (Shape::kSigns == GridSigns::kParity && std::popcount(bits) % 2 != 0) {
      size_t least = 0;
      for (size_t j = 1; j < 8; ++j) {
        if (w_[begin + j] * std::abs(x_[begin + j]) < w_[begin + least] * std::abs(x_[begin + least])) least = j;
      }
      bits = static_cast<uint8_t>(bits ^ 1u << least);
      is_flipped_[begin + least] ^= 1;
    }
    signs_[begin / 8] = bits;
  }

  // The best points of a sub-block at scale s; their sums.
  Sums evaluate(size_t b, float s) {
    const size_t first = sub_blocks_[b].first_variant;
    const size_t end = sub_blocks_[b].end_variant;
    Sums sums;
    for (size_t g = b * kGroupsPerSubBlock; g < (b + 1) * kGroupsPerSubBlock; ++g) {
      Group& group = groups_[g];
      Tried& tried = group.tried[first];
      if (tried.n == 0) tried.add(group.search[first].start(index_, s));
      const PointSums start = tried.best(s);
      PointSums best = start;
      for (size_t v = first; v < end; ++v) best = group.search[v].best(index_, s, best);
      if (best.point != start.point) tried.add(best);
      group.best = best;
      sums.p += best.p;
      sums.q += best.q;
    }
    return sums;
  }

  // The best scale of a sub-block if every point were in the grid, roughly. Fixes the delta that a sub-block shares.
  float unconstrained_scale(size_t b) {
    SubBlock& sub = sub_blocks_[b];
    float best_gain = 0;
    float best_scale = 0;
    for (const float ratio : kUnconstrainedScales) {
      const float s = sub.rms / Shape::kTypicalCoordinate * ratio;
      std::array<float, kVariants> gain{};
      for (size_t g = b * kGroupsPerSubBlock; g < (b + 1) * kGroupsPerSubBlock; ++g) {
        std::array<float, kVariants> bound;
        for (size_t v = 0; v < kVariants; ++v) {
          const std::array<float, 2> halves = groups_[g].search[v].unconstrained(s);
          bound[v] = s * (halves[0] + halves[1]);
        }
        if constexpr (Shape::kDelta == GridDelta::kPerGroup) bound[0] = std::max(bound[0], bound[1]);
        for (size_t v = 0; v < kVariants; ++v) gain[v] += bound[v];
      }
      for (size_t v = 0; v < (Shape::kDelta == GridDelta::kPerSubBlock ? kVariants : 1); ++v) {
        if (gain[v] <= best_gain) continue;
        best_gain = gain[v];
        best_scale = s;
        if constexpr (Shape::kDelta == GridDelta::kPerSubBlock) {
          sub.first_variant = v;
          sub.end_variant = v + 1;
        }
      }
    }
    return best_scale;
  }

  // At least what evaluate() would gain, from the points tried so far.
  float tried_gain(size_t b, float s) const {
    float sum = 0;
    for (size_t g = b * kGroupsPerSubBlock; g < (b + 1) * kGroupsPerSubBlock; ++g) {
      sum += groups_[g].tried[sub_blocks_[b].first_variant].best(s).gain(s);
    }
    return sum * s;
  }

  void search_scale(size_t b) {
    SubBlock& sub = sub_blocks_[b];
    const float middle = unconstrained_scale(b);
    for (size_t g = b * kGroupsPerSubBlock; g < (b + 1) * kGroupsPerSubBlock; ++g) {
      for (size_t v = sub.first_variant; v < sub.end_variant; ++v) groups_[g].search[v].fill_patterns();
    }
    if (!(middle > 0)) {  // as good as zero
      evaluate(b, 1);
      return;
    }
    float best_gain = 0;
    const auto attempt = [&](float s) {
      const Sums sums = evaluate(b, s);
      if (sums.best_gain() <= best_gain) return;
      best_gain = sums.best_gain();
      sub.scale = sums.best_scale();
    };
    for (const float ratio : Shape::kScales) attempt(middle * ratio);
    if (Shape::kSigns != GridSigns::kInGrid && sub.max < kFlat * sub.rms) {
      for (const float level : index_.level()) attempt(sub.rms / level);
    }
  }

  void search_scales() {
    float max_scale = 0;
    for (size_t b = 0; b < kSubBlocks; ++b) {
      search_scale(b);
      max_scale = std::max(max_scale, sub_blocks_[b].scale);
    }
    if (!(max_scale > 0)) return;
    float best_gain = 0;
    for (const float top : kTopMultipliers) {
      const float d = max_scale / (top * kMaxMultiplier);
      float gain = 0;
      for (size_t b = 0; b < kSubBlocks; ++b) {
        gain += tried_gain(b, d * multiplier(nearest_code(sub_blocks_[b].scale, d)));
      }
      if (gain > best_gain) {
        best_gain = gain;
        d_ = d;
      }
    }
    if (!(d_ > 0)) return;
    for (size_t b = 0; b < kSubBlocks; ++b) choose_code(b);
    round_d(least_squares());
  }

  static size_t nearest_code(float scale, float d) {
    const float c = round_to_integer((scale / d - 1) * 0.5F);
    return static_cast<size_t>(std::clamp(c, 0.0F, static_cast<float>(Shape::kScaleCodes - 1)));
  }

  void choose_code(size_t b) {
    SubBlock& sub = sub_blocks_[b];
    const size_t middle = nearest_code(sub.scale, d_);
    const size_t first = middle == 0 ? 0 : middle - 1;
    float best_gain = -1e30F;
    for (size_t c = first; c <= std::min(middle + 1, Shape::kScaleCodes - 1); ++c) {
      const float gain = tried_gain(b, d_ * multiplier(c));
      if (gain > best_gain) {
        best_gain = gain;
        sub.c = c;
      }
    }
    sub.sums = evaluate(b, d_ * multiplier(sub.c));
  }

  // The d that is best for the chosen points and scale codes.
  float least_squares() const {
    float p = 0;
    float q = 0;
    for (const SubBlock& sub : sub_blocks_) {
      const float m = multiplier(sub.c);
      p += m * sub.sums.p;
      q += m * m * sub.sums.q;
    }
    return p > 0 && q > 0 ? p / q : 0;
  }

  void round_d(float d) {
    half_d_ = float_to_half(std::min(d / Shape::kUnit, 65504.0F));
    d_ = half_to_float(half_d_) * Shape::kUnit;
  }

  Codes codes() {
    Codes codes;
    if (half_d_ == 0) return codes;
    codes.d = half_d_;
    codes.signs = signs_;
    for (size_t b = 0; b < kSubBlocks; ++b) {
      codes.scale[b] = static_cast<uint8_t>(sub_blocks_[b].c);
      evaluate(b, d_ * multiplier(sub_blocks_[b].c));
    }
    for (size_t g = 0; g < kGroups; ++g) {
      const PointSums& best = groups_[g].best;
      codes.has_negative_delta[g] = best.point >> 16 != 0;
      codes.code[g] = index_.code(best);
    }
    return codes;
  }

  const Index& index_;
  const float* x_ = nullptr;
  uint16_t half_d_ = 0;
  float d_ = 0;  // of a coordinate: times kUnit
  std::array<float, kElems> w_;
  std::array<uint8_t, kElems> is_flipped_{};
  std::array<uint8_t, 32> signs_{};
  std::array<SubBlock, kSubBlocks> sub_blocks_{};
  std::array<Group, kGroups> groups_;
};

}  // namespace zinc
