// The codebooks (grids) of the IQ formats: points of 4 or 8 coordinates selected by a code, and the two ways a point is
// dequantized. Fixed by the file format.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace zinc {

template <size_t kPoints, size_t kDims>
using Grid = std::array<std::array<int8_t, kDims>, kPoints>;

extern const Grid<256, 8> kIq2XxsGrid;
extern const Grid<512, 8> kIq2XsGrid;
extern const Grid<1024, 8> kIq2SGrid;
extern const Grid<256, 4> kIq3XxsGrid;
extern const Grid<512, 4> kIq3SGrid;
extern const Grid<2048, 8> kIq1Grid;  // coordinates -1, 0, 1

constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Eight sign bits from seven: the eighth is their parity.
constexpr uint8_t expand_signs(uint32_t seven) {
  return static_cast<uint8_t>(seven | static_cast<uint32_t>(std::popcount(seven) & 1) << 7);
}

// out[j] = scale * point[j], negated where bit j of `signs` is set.
template <size_t kDims>
void write_signed(const std::array<int8_t, kDims>& point, uint8_t signs, float scale, float* out) {
  for (size_t j = 0; j < kDims; ++j) {
    const int value = (signs >> j & 1) != 0 ? -point[j] : point[j];
    out[j] = scale * static_cast<float>(value);
  }
}

// out[j] = scale * (point[j] + delta), delta 1/8 or -1/8.
inline void write_with_delta(const std::array<int8_t, 8>& point, bool negative, float scale, float* out) {
  const float delta = negative ? -0.125f : 0.125f;
  for (size_t j = 0; j < 8; ++j) out[j] = scale * (static_cast<float>(point[j]) + delta);
}

}  // namespace zinc
