// The search for the scale of a group of 32 elements of IQ4_NL and IQ4_XS, each the nearest of 16 levels that are not
// symmetric around 0: scales of both signs are tried.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tensor/iq_grids.h"

namespace zinc {

// The nearest level of a value, from a table: the middle between two levels is a multiple of 1/2.
class NearestLevel {
 public:
  NearestLevel() {
    for (size_t i = 0; i < kCells; ++i) {
      const float middle_of_cell = (static_cast<float>(i) + 0.5F) * 0.5F - kOffset;
      uint8_t best = 0;
      for (uint8_t code = 1; code < 16; ++code) {
        const auto distance = [&](uint8_t c) { return std::abs(middle_of_cell - static_cast<float>(kIq4Levels[c])); };
        if (distance(code) < distance(best)) best = code;
      }
      code_[i] = best;
      level_[i] = static_cast<float>(kIq4Levels[best]);
    }
  }
  uint8_t code(float value) const { return code_[cell(value)]; }
  float level(float value) const { return level_[cell(value)]; }

 private:
  static constexpr size_t kCells = 512;
  static constexpr float kOffset = 128;
  static size_t cell(float value) {
    const float at = (value + kOffset) * 2;
    const float from_zero = at > 0 ? at : 0;
    return static_cast<size_t>(static_cast<int>(from_zero < kCells - 1 ? from_zero : kCells - 1));
  }
  std::array<uint8_t, kCells> code_;
  std::array<float, kCells> level_;
};

struct LevelGroup {
  static constexpr size_t kElems = 32;
  struct Sums {  // of the levels g: p = sum w x g, q = sum w g^2
    float p = 0;
    float q = 0;
    float gain(float s) const { return s * (2 * p - s * q); }
    float best_gain() const { return p * best_scale(); }
    float best_scale() const { return q > 0 ? p / q : 0; }
  };

  const float* x = nullptr;
  const float* w = nullptr;
  std::array<float, kElems> wx;

  void fill(const float* elements, const float* weights) {  // both must outlive this
    x = elements;
    w = weights;
    for (size_t i = 0; i < kElems; ++i) wx[i] = w[i] * x[i];
  }

  Sums evaluate(const NearestLevel& nearest, float s) const {
    if (!(std::abs(s) > kLeastScale)) return {};
    const float inverse = 1 / s;
    std::array<float, 4> p{};
    std::array<float, 4> q{};
    for (size_t i = 0; i < kElems; i += 4) {
      for (size_t lane = 0; lane < 4; ++lane) {
        const float g = nearest.level(x[i + lane] * inverse);
        p[lane] += wx[i + lane] * g;
        q[lane] += w[i + lane] * g * g;
      }
    }
    return {p[0] + p[1] + p[2] + p[3], q[0] + q[1] + q[2] + q[3]};
  }

  // The scale that is best for this group alone.
  float best_scale(const NearestLevel& nearest) const {
    float max = 0;
    for (size_t i = 0; i < kElems; ++i) {
      if (std::abs(x[i]) > std::abs(max)) max = x[i];
    }
    float scale = 0;
    float best_gain = 0;
    const auto attempt = [&](float s) {
      const Sums sums = evaluate(nearest, s);
      if (sums.best_gain() <= best_gain) return;
      best_gain = sums.best_gain();
      scale = sums.best_scale();
    };
    for (float level = kFirstLevel; level <= kLastLevel; level += kStep) {  // of the largest element
      attempt(max / level);
      attempt(-max / level);
    }
    for (size_t i = 0; i < kRefinements; ++i) attempt(scale);
    return scale;
  }

  void take_codes(const NearestLevel& nearest, float s, uint8_t* q) const {
    const float inverse = std::abs(s) > kLeastScale ? 1 / s : 0;
    for (size_t j = 0; j < kElems / 2; ++j) {
      q[j] = static_cast<uint8_t>(nearest.code(x[j] * inverse) | nearest.code(x[j + kElems / 2] * inverse) << 4);
    }
  }

 private:
  static constexpr float kLeastScale = 1e-30F;
  static constexpr float kFirstLevel = 90;
  static constexpr float kLastLevel = 150;
  static constexpr float kStep = 4;
  static constexpr size_t kRefinements = 2;
};

}  // namespace zinc
