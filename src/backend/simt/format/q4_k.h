// Q4_K: 4 bits; a 6-bit scale and minimum per group, d and dmin per segment. 4.5 bits per weight.
#pragma once

#include "backend/simt/k_quant_scales.h"
#include "backend/simt/quantized_weights.h"

namespace zinc::simt {

struct WeightFormat {
  static constexpr int kBlockElems = 256, kBlockBytes = 144, kHeaderBytes = 16, kGroupBytes = 16, kQ8Block = 256;
  static constexpr bool kHasMin = true, kHalfScales = false, kSignedScales = false;
  using Header = KScales;
  using Raw = uint4;

  static ZINC_DEVICE Header header(const u8* segment, int row) { return {load_16(piece(segment, 0, 16, row))}; }
  static ZINC_DEVICE Raw group(const u8* segment, int row, int g) {
    return load_16(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row));
  }
  static ZINC_DEVICE void expand(u32 nibbles, int& low, int& high) {
    low = static_cast<int>(nibbles & 0x0F0F0F0Fu);
    high = static_cast<int>(nibbles >> 4 & 0x0F0F0F0Fu);
  }
  static ZINC_DEVICE void words(const Raw& raw, int (&w)[8]) {
    for (int i = 0; i < 4; ++i) expand(component(raw, i), w[i], w[i + 4]);
  }
  static ZINC_DEVICE void fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    expand(load_4(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row) + 4 * i), low, high);
  }
  static ZINC_DEVICE void raw_fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    fragment(segment, row, g, i, low, high);
  }
  static ZINC_DEVICE void pack(const u8* from, int, u8* segment, int row) {
    u8* header = piece(segment, 0, 16, row);
    for (int j = 0; j < 16; ++j) header[j] = from[j];
    for (int g = 0; g < kSegmentGroups; ++g) {
      const u8* q = from + 16 + g / 2 * 32;
      pack_nibbles(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row),
                   [&](int e) { return q[e] >> g % 2 * 4 & 15; });
    }
  }
};

}  // namespace zinc::simt
