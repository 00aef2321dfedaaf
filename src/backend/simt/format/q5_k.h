// Q5_K: Q4_K with a fifth bit, in one word per group (bit e: element e). 5.5 bits per weight.
#pragma once

#include "backend/simt/k_quant_scales.h"
#include "backend/simt/quantized_weights.h"

namespace zinc::simt {

struct WeightFormat {
  static constexpr int kBlockElems = 256, kBlockBytes = 176, kHeaderBytes = 16, kGroupBytes = 20, kQ8Block = 256;
  static constexpr bool kHasMin = true, kHalfScales = false, kSignedScales = false;
  using Header = KScales;
  struct Raw {
    uint4 nibbles;
    u32 fifth;
  };

  static ZINC_DEVICE Header header(const u8* segment, int row) { return {load_16(piece(segment, 0, 16, row))}; }
  static ZINC_DEVICE Raw group(const u8* segment, int row, int g) {
    const int begin = kHeaderBytes + g * kGroupBytes;
    return {load_16(piece(segment, begin, 16, row)), load_4(piece(segment, begin + 16, 4, row))};
  }
  static ZINC_DEVICE void expand(u32 nibbles, u32 fifth, int i, int& low, int& high) {
    low = static_cast<int>((nibbles & 0x0F0F0F0Fu) | expand_fifth_bits(fifth >> 4 * i));
    high = static_cast<int>((nibbles >> 4 & 0x0F0F0F0Fu) | expand_fifth_bits(fifth >> (16 + 4 * i)));
  }
  static ZINC_DEVICE void words(const Raw& raw, int (&w)[8]) {
    for (int i = 0; i < 4; ++i) expand(component(raw.nibbles, i), raw.fifth, i, w[i], w[i + 4]);
  }
  static ZINC_DEVICE void fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    const int begin = kHeaderBytes + g * kGroupBytes;
    expand(load_4(piece(segment, begin, 16, row) + 4 * i), load_4(piece(segment, begin + 16, 4, row)), i, low, high);
  }
  static ZINC_DEVICE void raw_fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    fragment(segment, row, g, i, low, high);
  }
  static ZINC_DEVICE void pack(const u8* from, int, u8* segment, int row) {
    u8* header = piece(segment, 0, 16, row);
    for (int j = 0; j < 16; ++j) header[j] = from[j];
    const u8* fifth = from + 16;
    for (int g = 0; g < kSegmentGroups; ++g) {
      const u8* q = from + 48 + g / 2 * 32;
      const int begin = kHeaderBytes + g * kGroupBytes;
      pack_nibbles(piece(segment, begin, 16, row), [&](int e) { return q[e] >> g % 2 * 4 & 15; });
      u32 bits = 0;
      for (int e = 0; e < kGroupElems; ++e) bits |= static_cast<u32>(fifth[e] >> g & 1) << e;
      *reinterpret_cast<u32*>(piece(segment, begin + 16, 4, row)) = bits;
    }
  }
};

}  // namespace zinc::simt
