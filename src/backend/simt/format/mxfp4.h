// MXFP4: E2M1, a power-of-two scale per group. 4.25 bits per weight.
#pragma once

#include "backend/simt/codebooks.h"
#include "backend/simt/quantized_weights.h"

namespace zinc::simt {

struct WeightFormat {
  static constexpr int kBlockElems = 32, kBlockBytes = 17, kHeaderBytes = 8, kGroupBytes = 16, kQ8Block = 32;
  static constexpr bool kHasMin = false, kHalfScales = false;
  struct Header {
    uint2 exponents;
    // Half of 2^(e - 127), as the codebook is doubled; subnormal for e < 2.
    ZINC_DEVICE float scale(int g) const {
      const u32 all = g < 4 ? exponents.x : exponents.y;
      const int bits = static_cast<int>((g % 4 == 3 ? all >> 1 : all << (23 - 8 * (g % 4))) & 0x7F800000u);  // e
      return __int_as_float(max(bits - 0x00800000, 0x00200000 + (bits >> 2)));
    }
  };
  using Raw = uint4;

  static ZINC_DEVICE Header header(const u8* segment, int row) { return {load_8(piece(segment, 0, 8, row))}; }
  static ZINC_DEVICE Header half_header(const u8* segment, int row, int half) {
    return {{load_4(piece(segment, 0, 8, row) + 4 * half), 0}};
  }
  static ZINC_DEVICE Raw group(const u8* segment, int row, int g) {
    return load_16(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row));
  }
  static ZINC_DEVICE void expand(u32 nibbles, int& low, int& high) {
    const u32 table[4] = ZINC_FP4_CODEBOOK;
    lookup_8(table, nibbles, low, high);
  }
  static ZINC_DEVICE void words(const Raw& raw, int (&w)[8]) {
    for (int i = 0; i < 4; ++i) expand(component(raw, i), w[i], w[i + 4]);
  }
  // Dot product with activations in nibble order: 0, 16, 1, 17, ... Positive and negative weights are summed apart.
  static ZINC_DEVICE int dot_nibble_order(const Raw& raw, const int4* x) {
    const u32 table[4] = ZINC_FP4_CODEBOOK;
    const int words[8] = {x[0].x, x[0].y, x[0].z, x[0].w, x[1].x, x[1].y, x[1].z, x[1].w};
    int above = 0, below = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 nibbles = component(raw, i), negative = nibbles ^ 0x88888888u;
      above = __dp4a(static_cast<int>(prmt(table[0], table[1], nibbles)), words[2 * i], above);
      above = __dp4a(static_cast<int>(prmt(table[0], table[1], nibbles >> 16)), words[2 * i + 1], above);
      below = __dp4a(static_cast<int>(prmt(table[0], table[1], negative)), words[2 * i], below);
      below = __dp4a(static_cast<int>(prmt(table[0], table[1], negative >> 16)), words[2 * i + 1], below);
    }
    return above - below;
  }
  static ZINC_DEVICE void fragment(const u8* segment, int row, int g, int i, int& low, int& high) {
    expand(load_4(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row) + 4 * i), low, high);
  }

  // The lane's weights of a group times scale / 2^64, as bf16 pairs. Exact for scales of 2^-62 to 2^64.
  // An E2M1 code's three low bits become a bf16's last exponent and first mantissa bits: the value is then 2^-126 of
  // the weight, and the same multiplication sets both signs of a word.
  static constexpr float kFolded = 18446744073709551616.0f;  // 2^64
  static ZINC_DEVICE void scaled_pairs(const u8* segment, int row, int g, int i, const Header& header, int scale_of,
                                       u32 (&pairs)[4]) {
    const u32 nibbles = load_4(piece(segment, kHeaderBytes + g * kGroupBytes, 16, row) + 4 * i);
    const u32 e = (scale_of < 4 ? header.exponents.x : header.exponents.y);
    const u32 factor = __byte_perm(e, 0, 0x4040u + 0x0101u * static_cast<u32>(scale_of % 4)) * 128u + 0x1F001F00u;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const u32 bytes = __byte_perm(nibbles, 0, k == 0 ? 0x4140u : 0x4342u);
      pairs[k] = (bytes & 0x000F000Fu) * 0x1040u & 0x81C081C0u;
      pairs[2 + k] = (bytes & 0x00F000F0u) * 0x0104u & 0x81C081C0u;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) pairs[k] = mul_bf16x2(pairs[k], factor);
  }
  static ZINC_DEVICE void pack(const u8* from, int n_elems, u8* segment, int row) {
    for (int g = n_elems / kGroupElems; g < kSegmentGroups; ++g) piece(segment, 0, 8, row)[g] = 127;
    for (int g = 0; g < n_elems / kGroupElems; ++g) {
      const u8* block = from + g * kBlockBytes;
      piece(segment, 0, 8, row)[g] = block[0];
      u8* to = piece(segment, kHeaderBytes + g * kGroupBytes, 16, row);
      for (int j = 0; j < 16; ++j) to[j] = block[1 + j];
    }
  }
};

}  // namespace zinc::simt
