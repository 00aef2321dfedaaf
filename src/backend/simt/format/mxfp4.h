// MXFP4: 4-bit floats, one power of two for each group. 4.25 bits a weight.
#pragma once

#include "backend/simt/level_tables.h"
#include "backend/simt/quantized.h"

namespace zinc::simt {

struct WeightFormat {
  static constexpr int kBlockElems = 32, kBlockBytes = 17, kHeaderBytes = 8, kGroupBytes = 16, kRoundedBlock = 32;
  static constexpr bool kHasMin = false, kHalfScales = false;
  struct Header {
    uint2 exponents;
    // Half of 2^(e - 127), as the levels are doubled; subnormal for e < 2.
    ZINC_DEVICE float scale(int g) const {
      const u32 e = (g < 4 ? exponents.x : exponents.y) >> 8 * (g % 4) & 255u;
      return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
  };
  using Raw = uint4;

  static ZINC_DEVICE Header header(const u8* segment, int row) { return {load_8(piece(segment, 0, 8, row))}; }
  static ZINC_DEVICE Raw group(const u8* segment, int row, int g) {
    return load_16(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row));
  }
  static ZINC_DEVICE void expand(u32 nibbles, int& low, int& high) {
    const u32 table[4] = ZINC_FP4_LEVELS;
    look_up_8(table, nibbles, low, high);
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
      piece(segment, 0, 8, row)[g] = block[0];
      u8* to = piece(segment, kHeaderBytes + g * kGroupBytes, 16, row);
      for (int j = 0; j < 16; ++j) to[j] = block[1 + j];
    }
  }
};

}  // namespace zinc::simt
