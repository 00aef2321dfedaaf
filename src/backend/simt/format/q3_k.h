// Q3_K: 3 bits minus 4; an int8 scale per half group, d per segment. The low two bits of elements 4i..4i+3 are at bit
// 2i of the bytes of one word (elements 0-15), those of 16-31 in a second word; the top bits of elements 4i..4i+3 are
// at bit i of the bytes of a third. 3.63 bits per weight.
#pragma once

#include "backend/simt/quantized_weights.h"
#include "backend/simt/signed_scales.h"

namespace zinc::simt {

struct WeightFormat : SignedScalesFormat {
  static constexpr int kBlockElems = 256, kBlockBytes = 110, kGroupBytes = 12, kQ8Block = 256, kBias = 4;
  struct Raw {
    uint2 low;
    u32 top;
  };

  static ZINC_DEVICE Raw group(const u8* segment, int row, int g) {
    const int begin = kHeaderBytes + g * kGroupBytes;
    return {load_8(piece(segment, begin, 8, row)), load_4(piece(segment, begin + 8, 4, row))};
  }
  // Elements 4i..4i+3 and 16+4i..19+4i with kBias added.
  static ZINC_DEVICE void expand(const Raw& raw, int i, u32& low, u32& high) {
    low = (raw.low.x >> 2 * i & 0x03030303u) | (raw.top >> i & 0x01010101u) << 2;
    high = (raw.low.y >> 2 * i & 0x03030303u) | (raw.top >> (i + 4) & 0x01010101u) << 2;
  }
  // The fragment with kBias added, so that its bytes are unsigned (byte_planes.h).
  static ZINC_DEVICE void raw_fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    u32 a, b;
    expand(group(segment, row, g), i, a, b);
    low = static_cast<int>(a);
    high = static_cast<int>(b);
  }
  static ZINC_DEVICE void words(const Raw& raw, int (&w)[8]) {
    for (int i = 0; i < 4; ++i) {
      u32 low, high;
      expand(raw, i, low, high);
      w[i] = subtract_bytes<kBias>(low);
      w[i + 4] = subtract_bytes<kBias>(high);
    }
  }
  static ZINC_DEVICE void fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    raw_fragment(segment, row, g, i, low, high);
    low = subtract_bytes<kBias>(static_cast<u32>(low));
    high = subtract_bytes<kBias>(static_cast<u32>(high));
  }

  // Six bits minus 32. The file has the low nibbles in eight bytes, the top bits in four.
  static ZINC_DEVICE int file_scale(const u8* scales, int half_group) {
    const int low = scales[half_group % 8] >> half_group / 8 * 4 & 15;
    const int top = scales[8 + half_group % 4] >> half_group / 4 * 2 & 3;
    return (low | top << 4) - 32;
  }
  static ZINC_DEVICE void pack(const u8* from, int, u8* segment, int row) {
    for (int h = 0; h < 2 * kSegmentGroups; ++h) {
      piece(segment, 0, 16, row)[h] = static_cast<u8>(file_scale(from + 96, h));
    }
    *reinterpret_cast<u32*>(piece(segment, 16, 4, row)) = read_u16(from + 108);
    for (int g = 0; g < kSegmentGroups; ++g) {
      uint2 low = {0, 0};
      u32 top = 0;
      for (int e = 0; e < kGroupElems; ++e) {
        const u32 bits = static_cast<u32>(from[32 + g / 4 * 32 + e] >> g % 4 * 2 & 3) << (e % 4 * 8 + e % 16 / 4 * 2);
        low.x |= e < 16 ? bits : 0;
        low.y |= e < 16 ? 0 : bits;
        top |= static_cast<u32>(from[e] >> g & 1) << (e % 4 * 8 + e / 4);
      }
      const int begin = kHeaderBytes + g * kGroupBytes;
      *reinterpret_cast<uint2*>(piece(segment, begin, 8, row)) = low;
      *reinterpret_cast<u32*>(piece(segment, begin + 8, 4, row)) = top;
    }
  }
};

}  // namespace zinc::simt
