// Codes of 1 or 2 bits with one f16 scale per block: Q1_0, Q2_0, TQ1_0, TQ2_0: x = d * (code - 1).
// Panel block: d f16[16], then vectors of 16 / bits codes of each row: bits b * s and up of byte j: code s * 4 + j.
#pragma once

#include "backend/cpu/panel_kernel.h"

namespace zinc::cpu::ZINC_ISA {

// Kind:
//   struct FileBlock                   a row's block on disk, with d
//   kElems, kBits                      codes of 1 bit mean 0 and 2
//   read(file_block, codes)            one code per byte
template <class Kind>
struct PlainBlock {
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_32;
  static constexpr int kBits = Kind::kBits;
  static constexpr size_t kVectorBytes = 64, kHeaderBytes = 32, kVectorCodes = 32 / kBits,
                          kVectors = Kind::kElems / kVectorCodes;
  static constexpr uint16_t kBlockElems = Kind::kElems, kPanelBlockBytes = kHeaderBytes + kVectors * kVectorBytes;

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      typename Kind::FileBlock file_block;
      std::memcpy(&file_block, row_blocks[r], sizeof file_block);
      std::memcpy(out + r * 2, &file_block.d, 2);
      uint8_t codes[Kind::kElems];
      Kind::read(file_block, codes);
      for (size_t v = 0; v < kVectors; ++v) {
        uint32_t word = 0;
        for (size_t s = 0; s < kVectorCodes / 4; ++s) word |= word_at(codes, v * kVectorCodes / 4 + s) << s * kBits;
        put_word(out + kHeaderBytes + v * kVectorBytes, r, word);
      }
    }
  }

  template <int s, int N>  // quads s, s + 1, ... of a vector; k: of its first code
  static void add_quads(B bits, const TokenActivation* x, size_t k, I (&dots)[N]) {
    if constexpr (s < kVectorCodes / 4) {
      B codes;
      if constexpr (kBits == 1) {
        codes = b_and(b_move_bit<s, 1>(bits), b_set(2));
      } else {
        codes = b_and(b_move_bit<2 * s, 0>(bits), b_set(3));
      }
      for (int n = 0; n < N; ++n) dots[n] = dot4(dots[n], codes, x[n].q + k + s * 4);
      add_quads<s + 1, N>(bits, x, k, dots);
    }
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    constexpr size_t kBlocksOf32 = Kind::kElems / 32;
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    for (size_t b = 0; b < kBlocksOf32; ++b) {
      const size_t x_block = block * kBlocksOf32 + b;
      I dots[N];
      for (int n = 0; n < N; ++n) dots[n] = i_set(-x[n].sum32[x_block]);
      for (size_t v = 0; v < kBits; ++v) {
        const B bits = b_load(w + kHeaderBytes + (b * kBits + v) * kVectorBytes);
        add_quads<0, N>(bits, x, x_block * 32 + v * kVectorCodes, dots);
      }
      for (int n = 0; n < N; ++n) sums[n] = f_fma(i_to_f(dots[n]), f_set(x[n].scale[x_block]), sums[n]);
    }
    const F d = f_load_half(reinterpret_cast<const uint16_t*>(w));
    for (int n = 0; n < N; ++n) acc[n] = f_fma(d, sums[n], acc[n]);
  }
};

}  // namespace zinc::cpu::ZINC_ISA
