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

// The same for one scale.
template <size_t n>
float fp4_error(const float* x, const float* w, float d, float inverse) {
  Lanes error{};
  for (size_t i = 0; i < n; i += kLanes) {
    const Lanes magnitude = absolute(load_lanes(x + i));
    const Lanes e = magnitude - d * round_fp4(magnitude * inverse);
    error += load_lanes(w + i) * e * e;
  }
  return sum(error);
}

// codes[i]: the code of x[i] * inverse.
template <size_t n>
void fp4_codes(const float* x, float inverse, uint8_t (&codes)[n]) {
  int32_t wide[n];
  for (size_t i = 0; i < n; i += kLanes) {
    const Lanes value = load_lanes(x + i), rounded = round_fp4(absolute(value) * inverse);
    // Codes 0 to 4 are twice the magnitude; 3, 4 and 6 are codes 5, 6 and 7. A comparison is -1 where it holds.
    const IntLanes code =
        to_integers(min_lanes(rounded * 2.0F, all_lanes(4))) - (rounded > 2.0F) - (rounded > 3.0F) - (rounded > 4.0F);
    const IntLanes sign = (value < 0.0F) & (code > 0) & 8;
    store_lanes(code | sign, wide + i);
  }
  for (size_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(wide[i]);
}

}  // namespace zinc
