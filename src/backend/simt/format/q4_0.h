// Q4_0: 4 bits minus 8, an f16 scale per group. 4.5 bits per weight.
#pragma once

#include "backend/simt/quantized_weights.h"

namespace zinc::simt {

struct WeightFormat {
  static constexpr int kBlockElems = 32, kBlockBytes = 18, kHeaderBytes = 16, kGroupBytes = 16, kQ8Block = 32;
  static constexpr bool kHasMin = false, kHalfScales = false;
  struct Header {
    uint4 scales;  // f16
    ZINC_DEVICE float scale(int g) const {
      const u32 pair = component(scales, g / 2);
      return g % 2 == 0 ? low_half(pair) : high_half(pair);
    }
  };
  using Raw = uint4;

  static ZINC_DEVICE Header header(const u8* segment, int row) { return {load_16(piece(segment, 0, 16, row))}; }
  static ZINC_DEVICE Header half_header(const u8* segment, int row, int half) {
    const uint2 scales = load_8(piece(segment, 0, 16, row) + 8 * half);
    return {{scales.x, scales.y, 0, 0}};
  }
  static ZINC_DEVICE Raw group(const u8* segment, int row, int g) {
    return load_16(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row));
  }
  static ZINC_DEVICE void expand(u32 nibbles, int& low, int& high) {
    low = subtract_bytes<8>(nibbles & 0x0F0F0F0Fu);
    high = subtract_bytes<8>(nibbles >> 4 & 0x0F0F0F0Fu);
  }
  static ZINC_DEVICE void words(const Raw& raw, int (&w)[8]) {
    for (int i = 0; i < 4; ++i) expand(component(raw, i), w[i], w[i + 4]);
  }
  static ZINC_DEVICE void fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    expand(load_4(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row) + 4 * i), low, high);
  }
  static ZINC_DEVICE void pack(const u8* from, int n_elems, u8* segment, int row) {
    for (int g = 0; g < n_elems / kGroupElems; ++g) {
      const u8* block = from + g * kBlockBytes;
      for (int j = 0; j < 2; ++j) piece(segment, 0, 16, row)[2 * g + j] = block[0 + j];
      u8* to = piece(segment, kHeaderBytes + g * kGroupBytes, 16, row);
      for (int j = 0; j < 16; ++j) to[j] = block[2 + j];
    }
  }
};

}  // namespace zinc::simt
