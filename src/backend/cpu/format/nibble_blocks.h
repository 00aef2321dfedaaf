// Blocks of 32 with 4-bit codes (and perhaps a fifth bit), one scale each: Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4.
// Panel block: the header (scales, and minima if any), 4 vectors whose low nibbles are quants 4v..4v+3 and
// whose high nibbles are 16+4v..16+4v+3 of each row, then a vector of fifth bits (bit v: quants 4v..4v+3).
#pragma once

#include <cstring>

#include "backend/cpu/format/tables.h"
#include "backend/cpu/panel_kernel.h"

namespace zinc::cpu::ZINC_ISA {

// Kind:
//   struct FileBlock                   a row's block on disk, with q[16] and, with kFifthBits, high[4]
//   kHeaderBytes, kFifthBits, kBias    kBias: added to each code's value to make it unsigned
//   pack_header(file_block, row, out)
//   scale(w)                           of the 16 rows
//   value(code)                        B -> B, codes to unsigned values
//   add_min<N>(w, block, x, acc)       minima, if any
template <class Kind>
struct NibbleBlock {
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_32;
  static constexpr bool kBiased = Kind::kBias == kByteBias;
  static constexpr size_t kFifthBitsOffset = Kind::kHeaderBytes + 256;
  static constexpr uint16_t kBlockElems = 32, kPanelBlockBytes = kFifthBitsOffset + (Kind::kFifthBits ? 64 : 0);

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      typename Kind::FileBlock file_block;
      std::memcpy(&file_block, row_blocks[r], sizeof file_block);
      Kind::pack_header(file_block, r, out);
      for (size_t v = 0; v < 4; ++v) put_word(out + Kind::kHeaderBytes + v * 64, r, word_at(file_block.q, v));
      if constexpr (Kind::kFifthBits) {
        const uint32_t bits = word_at(file_block.high, 0);
        for (size_t i = 0; i < 4; ++i) out[kFifthBitsOffset + r * 4 + i] = every_fourth_bit(bits >> i);
      }
    }
  }

  // Bits 0, 4, 8, ... packed into a byte: pext(bits, 0x11111111).
  static uint8_t every_fourth_bit(uint32_t bits) {
    bits &= 0x11111111;
    bits = (bits | bits >> 3) & 0x03030303;
    bits = (bits | bits >> 6) & 0x000F000F;
    return static_cast<uint8_t>(bits | bits >> 12);
  }

  template <int v, int N>
  static void multiply_vector(const uint8_t* w, size_t k, const TokenActivation* x, I (&dots)[N]) {
    const B both = b_load(w + Kind::kHeaderBytes + v * 64);
    B low = b_low_nibbles(both), high = b_high_nibbles(both);
    if constexpr (Kind::kFifthBits) {
      const B bits = b_load(w + kFifthBitsOffset), fifth = b_set(0x10);
      low = b_or(low, b_and(b_shift_left<4 - v>(bits), fifth));
      high = b_or(high, b_and(b_shift_right<v>(bits), fifth));
    }
    low = Kind::value(low);
    high = Kind::value(high);
    constexpr auto dot = kBiased ? dot4_biased : dot4;
    for (int n = 0; n < N; ++n) {
      dots[n] = dot(dots[n], low, x[n].q + k + v * 4);
      dots[n] = dot(dots[n], high, x[n].q + k + 16 + v * 4);
    }
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    I dots[N];
    for (int n = 0; n < N; ++n) {
      const int x_sum = x[n].sum32[block];
      dots[n] = kBiased ? biased_start(x_sum) : i_set(-Kind::kBias * x_sum);
    }
    multiply_vector<0, N>(w, block * 32, x, dots);
    multiply_vector<1, N>(w, block * 32, x, dots);
    multiply_vector<2, N>(w, block * 32, x, dots);
    multiply_vector<3, N>(w, block * 32, x, dots);
    const F scale = Kind::scale(w);
    for (int n = 0; n < N; ++n) {
      acc[n] = f_fma(f_mul(scale, f_set(x[n].scale[block])), i_to_f(dots[n]), acc[n]);
    }
    Kind::template add_min<N>(w, block, x, acc);
  }
};

// Codes used directly as values, one f16 scale.
struct PlainCodes {
  static constexpr size_t kHeaderBytes = 32;
  static constexpr bool kFifthBits = false;
  static B value(B code) { return code; }
  static F scale(const uint8_t* w) { return f_load_half(reinterpret_cast<const uint16_t*>(w)); }
  template <int N>
  static void add_min(const uint8_t*, size_t, const TokenActivation*, F (&)[N]) {}
  template <class FileBlock>
  static void pack_header(const FileBlock& file_block, size_t row, uint8_t* out) {
    std::memcpy(out + row * 2, &file_block.d, 2);
  }
};

// The same with an f16 minimum: x = d * q + m.
struct CodesWithMin : PlainCodes {
  static constexpr size_t kHeaderBytes = 64;
  static constexpr int kBias = 0;
  template <int N>
  static void add_min(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    const F m = f_load_half(reinterpret_cast<const uint16_t*>(w + 32));
    for (int n = 0; n < N; ++n) {
      acc[n] = f_fma(m, f_set(x[n].scale[block] * static_cast<float>(x[n].sum32[block])), acc[n]);
    }
  }
  template <class FileBlock>
  static void pack_header(const FileBlock& file_block, size_t row, uint8_t* out) {
    std::memcpy(out + row * 2, &file_block.d, 2);
    std::memcpy(out + 32 + row * 2, &file_block.m, 2);
  }
};

}  // namespace zinc::cpu::ZINC_ISA
