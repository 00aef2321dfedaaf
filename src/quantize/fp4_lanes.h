// Rounding to E2M1 (tensor/fp4.h): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quantize/lanes.h"

namespace zinc {

inline constexpr float kLargestFp4 = 6;

// The nearest magnitude. REQUIRES: y >= 0.
inline Lanes round_fp4(Lanes y) {
  const Lanes halves = round_lanes(min_lanes(y, all_lanes(2)) * 2.0F) * 0.5F;
  const Lanes ones = round_lanes(min_lanes(y, all_lanes(4)));
  const Lanes twos = round_lanes(min_lanes(y, all_lanes(kLargestFp4)) * 0.5F) * 2.0F;
  const auto is_below_2 = y < 2.0F, is_below_4 = y < 4.0F;
  return is_below_2 ? halves : is_below_4 ? ones : twos;
}

inline Lanes absolute(Lanes x) { return max_lanes(x, -x); }

// The weighted squared error of n elements for kLanes scales d.
template <size_t n>
Lanes fp4_errors(const float* x, const float* w, Lanes d, Lanes inverse) {
  Lanes error{};
  for (size_t i = 0; i < n; ++i) {
    const Lanes magnitude = absolute(all_lanes(x[i]));
    const Lanes e = magnitude - d * round_fp4(magnitude * inverse);
    error += w[i] * e * e;
  }
  return error;
}

// codes[i]: the code of x[i] * inverse.
template <size_t n>
void fp4_codes(const float* x, float inverse, uint8_t (&codes)[n]) {
  constexpr uint8_t kCodeOfTwice[13] = {0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 7, 7};
  for (size_t i = 0; i < n; i += kLanes) {
    const Lanes value = load_lanes(x + i), twice = round_fp4(absolute(value) * inverse) * 2.0F;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint8_t code = kCodeOfTwice[static_cast<int>(twice[lane])];
      codes[i + lane] = static_cast<uint8_t>(code | (value[lane] < 0 && code > 0 ? 8 : 0));
    }
  }
}

}  // namespace zinc
