// Q6_K: 6 bits minus 32; an int8 scale per half group, d per segment. The top two bits of elements 4i..4i+3 are at bit
// 2i of the bytes of one word (elements 0-15), those of 16-31 in a second word. 6.63 bits per weight.
#pragma once

#include "backend/simt/quantized_weights.h"
#include "backend/simt/signed_scales.h"

namespace zinc::simt {

struct WeightFormat : SignedScalesFormat {
  static constexpr int kBlockElems = 256, kBlockBytes = 210, kGroupBytes = 24, kQ8Block = 256, kBias = 32;
  struct Raw {
    uint4 nibbles;
    uint2 top;
  };

  static ZINC_DEVICE Raw group(const u8* segment, int row, int g) {
    const int begin = kHeaderBytes + g * kGroupBytes;
    return {load_16(piece(segment, begin, 16, row)), load_8(piece(segment, begin + 16, 8, row))};
  }
  static ZINC_DEVICE void expand(u32 nibbles, uint2 top, int i, int& low, int& high) {
    low = subtract_bytes<32>((nibbles & 0x0F0F0F0Fu) | (top.x >> 2 * i & 0x03030303u) << 4);
    high = subtract_bytes<32>((nibbles >> 4 & 0x0F0F0F0Fu) | (top.y >> 2 * i & 0x03030303u) << 4);
  }
  // The fragment with kBias added, so that its bytes are unsigned (byte_planes.h). Rotated by 4 - 2 i bits, the words
  // of top bits have those of lane i in position.
  static ZINC_DEVICE void raw_fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    const int begin = kHeaderBytes + g * kGroupBytes;
    const u32 nibbles = load_4(piece(segment, begin, 16, row) + 4 * i), rotate = static_cast<u32>(4 - 2 * i);
    const uint2 top = load_8(piece(segment, begin + 16, 8, row));
    low = static_cast<int>((nibbles & 0x0F0F0F0Fu) | (__funnelshift_l(top.x, top.x, rotate) & 0x30303030u));
    high = static_cast<int>((nibbles >> 4 & 0x0F0F0F0Fu) | (__funnelshift_l(top.y, top.y, rotate) & 0x30303030u));
  }
  static ZINC_DEVICE void words(const Raw& raw, int (&w)[8]) {
    for (int i = 0; i < 4; ++i) expand(component(raw.nibbles, i), raw.top, i, w[i], w[i + 4]);
  }
  static ZINC_DEVICE void fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    const int begin = kHeaderBytes + g * kGroupBytes;
    expand(load_4(piece(segment, begin, 16, row) + 4 * i), load_8(piece(segment, begin + 16, 8, row)), i, low, high);
  }

  // Element e of group g in the file's layout.
  static ZINC_DEVICE int low_bits(const u8* from, int g, int e) {
    const int quarter = g % 4;
    return from[g / 4 * 64 + quarter % 2 * 32 + e] >> quarter / 2 * 4 & 15;
  }
  static ZINC_DEVICE u32 top_bits(const u8* from, int g, int e) {
    return static_cast<u32>(from[128 + g / 4 * 32 + e] >> g % 4 * 2 & 3);
  }
  static ZINC_DEVICE void pack(const u8* from, int, u8* segment, int row) {
    for (int j = 0; j < 16; ++j) piece(segment, 0, 16, row)[j] = from[192 + j];
    *reinterpret_cast<u32*>(piece(segment, 16, 4, row)) = read_u16(from + 208);
    for (int g = 0; g < kSegmentGroups; ++g) {
      const int begin = kHeaderBytes + g * kGroupBytes;
      pack_nibbles(piece(segment, begin, 16, row), [&](int e) { return low_bits(from, g, e); });
      uint2 top = {0, 0};
      for (int e = 0; e < 16; ++e) {
        const int shift = e % 4 * 8 + e / 4 * 2;
        top.x |= top_bits(from, g, e) << shift;
        top.y |= top_bits(from, g, e + 16) << shift;
      }
      *reinterpret_cast<uint2*>(piece(segment, begin + 16, 8, row)) = top;
    }
  }
};

}  // namespace zinc::simt
