// IQ4_XS: 4-bit codebook indices; a 6-bit scale minus 32 per group, d per segment. 4.25 bits per weight.
#pragma once

#include "backend/simt/codebooks.h"
#include "backend/simt/quantized_weights.h"

namespace zinc::simt {

struct WeightFormat {
  static constexpr int kBlockElems = 256, kBlockBytes = 136, kHeaderBytes = 8, kGroupBytes = 16, kQ8Block = 256,
                       kBias = 128;
  static constexpr bool kHasMin = false, kHalfScales = false, kSignedScales = true;
  struct Header {
    uint2 bytes;
    ZINC_DEVICE float d() const { return low_half(bytes.x); }
    ZINC_DEVICE int scale(int g) const {
      return static_cast<int>((bytes.y >> 4 * g & 15u) | (bytes.x >> (16 + 2 * g) & 3u) << 4) - 32;
    }
  };
  using Raw = uint4;

  static ZINC_DEVICE Header header(const u8* segment, int row) { return {load_8(piece(segment, 0, 8, row))}; }
  static ZINC_DEVICE Raw group(const u8* segment, int row, int g) {
    return load_16(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row));
  }
  static ZINC_DEVICE void words(const Raw& raw, int (&w)[8]) {
    const u32 table[4] = ZINC_IQ4_CODEBOOK;
    for (int i = 0; i < 4; ++i) lookup_8(table, component(raw, i), w[i], w[i + 4]);
  }
  static ZINC_DEVICE void fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    const u32 table[4] = ZINC_IQ4_CODEBOOK;
    lookup_8(table, load_4(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row) + 4 * i), low, high);
  }
  // The fragment with kBias added, so that its bytes are unsigned (byte_planes.h).
  static ZINC_DEVICE void raw_fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    const u32 signed_table[4] = ZINC_IQ4_CODEBOOK;
    const u32 table[4] = {signed_table[0] ^ 0x80808080u, signed_table[1] ^ 0x80808080u, signed_table[2] ^ 0x80808080u,
                          signed_table[3] ^ 0x80808080u};
    lookup_8(table, load_4(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row) + 4 * i), low, high);
  }
  static ZINC_DEVICE void pack(const u8* from, int, u8* segment, int row) {
    for (int j = 0; j < 8; ++j) piece(segment, 0, 8, row)[j] = from[j];
    for (int g = 0; g < kSegmentGroups; ++g) {
      u8* to = piece(segment, kHeaderBytes + g * kGroupBytes, 16, row);
      for (int j = 0; j < 16; ++j) to[j] = from[8 + g * 16 + j];
    }
  }
};

}  // namespace zinc::simt
