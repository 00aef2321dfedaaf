// Q5_0: 5 bits minus 16, an f16 scale per group; the fifth bits in one word. 5.5 bits per weight.
#pragma once

#include "backend/simt/quantized_weights.h"

namespace zinc::simt {

struct WeightFormat {
  static constexpr int kBlockElems = 32, kBlockBytes = 22, kHeaderBytes = 16, kGroupBytes = 20, kQ8Block = 32;
  static constexpr bool kHasMin = false, kHalfScales = false;
  struct Header {
    uint4 scales;  // f16
    ZINC_DEVICE float scale(int g) const {
      const u32 pair = component(scales, g / 2);
      return g % 2 == 0 ? low_half(pair) : high_half(pair);
    }
  };
  struct Raw {
    uint4 nibbles;
    u32 fifth;
  };

  static ZINC_DEVICE Header header(const u8* segment, int row) { return {load_16(piece(segment, 0, 16, row))}; }
  static ZINC_DEVICE Header half_header(const u8* segment, int row, int half) {
    const uint2 scales = load_8(piece(segment, 0, 16, row) + 8 * half);
    return {{scales.x, scales.y, 0, 0}};
  }
  static ZINC_DEVICE Raw group(const u8* segment, int row, int g) {
    const int begin = kHeaderBytes + g * kGroupBytes;
    return {load_16(piece(segment, begin, 16, row)), load_4(piece(segment, begin + 16, 4, row))};
  }
  static ZINC_DEVICE void expand(u32 nibbles, u32 fifth, int i, int& low, int& high) {
    low = subtract_bytes<16>((nibbles & 0x0F0F0F0Fu) | expand_fifth_bits(fifth >> 4 * i));
    high = subtract_bytes<16>((nibbles >> 4 & 0x0F0F0F0Fu) | expand_fifth_bits(fifth >> (16 + 4 * i)));
  }
  static ZINC_DEVICE void words(const Raw& raw, int (&w)[8]) {
    for (int i = 0; i < 4; ++i) expand(component(raw.nibbles, i), raw.fifth, i, w[i], w[i + 4]);
  }
  static ZINC_DEVICE void fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    const int begin = kHeaderBytes + g * kGroupBytes;
    expand(load_4(piece(segment, begin, 16, row) + 4 * i), load_4(piece(segment, begin + 16, 4, row)), i, low, high);
  }
  static ZINC_DEVICE void pack(const u8* from, int n_elems, u8* segment, int row) {
    for (int g = 0; g < n_elems / kGroupElems; ++g) {
      const u8* block = from + g * kBlockBytes;
      for (int j = 0; j < 2; ++j) piece(segment, 0, 16, row)[2 * g + j] = block[0 + j];
      u8* to = piece(segment, kHeaderBytes + g * kGroupBytes, 16, row);
      for (int j = 0; j < 16; ++j) to[j] = block[6 + j];
      u8* fifth = piece(segment, kHeaderBytes + g * kGroupBytes + 16, 4, row);
      for (int j = 0; j < 4; ++j) fifth[j] = block[2 + j];
    }
  }
};

}  // namespace zinc::simt
