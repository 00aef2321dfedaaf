// Q8_0: int8, an f16 scale per group. 8.5 bits per weight.
#pragma once

#include "backend/simt/quantized_weights.h"

namespace zinc::simt {

struct WeightFormat {
  static constexpr int kBlockElems = 32, kBlockBytes = 34, kHeaderBytes = 16, kGroupBytes = 32, kQ8Block = 32;
  static constexpr bool kHasMin = false, kHalfScales = false;
  struct Header {
    uint4 scales;  // f16
    ZINC_DEVICE float scale(int g) const {
      const u32 pair = component(scales, g / 2);
      return g % 2 == 0 ? low_half(pair) : high_half(pair);
    }
  };
  struct Raw {
    uint4 first, second;
  };

  static ZINC_DEVICE Header header(const u8* segment, int row) { return {load_16(piece(segment, 0, 16, row))}; }
  static ZINC_DEVICE Header half_header(const u8* segment, int row, int half) {
    const uint2 scales = load_8(piece(segment, 0, 16, row) + 8 * half);
    return {{scales.x, scales.y, 0, 0}};
  }
  static ZINC_DEVICE Raw group(const u8* segment, int row, int g) {
    const int begin = kHeaderBytes + g * kGroupBytes;
    return {load_16(piece(segment, begin, 16, row)), load_16(piece(segment, begin + 16, 16, row))};
  }
  static ZINC_DEVICE void words(const Raw& raw, int (&w)[8]) {
    for (int i = 0; i < 4; ++i) {
      w[i] = static_cast<int>(component(raw.first, i));
      w[i + 4] = static_cast<int>(component(raw.second, i));
    }
  }
  static ZINC_DEVICE void fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    const int begin = kHeaderBytes + g * kGroupBytes;
    low = static_cast<int>(load_4(piece(segment, begin, 16, row) + 4 * i));
    high = static_cast<int>(load_4(piece(segment, begin + 16, 16, row) + 4 * i));
  }
  static ZINC_DEVICE void pack(const u8* from, int n_elems, u8* segment, int row) {
    for (int g = 0; g < n_elems / kGroupElems; ++g) {
      const u8* block = from + g * kBlockBytes;
      for (int j = 0; j < 2; ++j) piece(segment, 0, 16, row)[2 * g + j] = block[j];
      const int begin = kHeaderBytes + g * kGroupBytes;
      for (int j = 0; j < 16; ++j) piece(segment, begin, 16, row)[j] = block[2 + j];
      for (int j = 0; j < 16; ++j) piece(segment, begin + 16, 16, row)[j] = block[18 + j];
    }
  }
};

}  // namespace zinc::simt
