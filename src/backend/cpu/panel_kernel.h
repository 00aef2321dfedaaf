// The loop over a panel's blocks, shared by all formats. Included only by format/*.cc, which are compiled once per
// instruction set, after its vector abstraction (isa/*.h).
#pragma once

#include <cstring>

#include "backend/cpu/panel.h"

namespace zinc::cpu::ZINC_ISA {

// For packing: four consecutive quants of a row form a word; a vector holds one word of each of the 16 rows.
inline uint32_t word_at(const void* bytes, size_t word) {
  uint32_t w;
  std::memcpy(&w, static_cast<const uint8_t*>(bytes) + word * 4, 4);
  return w;
}
inline void put_word(uint8_t* vector, size_t row, uint32_t word) { std::memcpy(vector + row * 4, &word, 4); }

// Bit `from` of every byte to bit `to`. Bits cross byte boundaries: mask the result.
template <int from, int to>
B b_move_bit(B bits) {
  if constexpr (from < to) {
    return b_shift_left<to - from>(bits);
  } else {
    return b_shift_right<from - to>(bits);
  }
}

// Hardware prefetchers follow a panel of small blocks, but not each load of an unrolled large block: one Zen 5 core
// reads Q3_K, IQ3_S, Q5_K and Q6_K at 20 to 25 GB/s without this and at 40 to 50 with it; 4 KB ahead it is 34 to 41.
template <class Block>
void prefetch_ahead(const uint8_t* w) {
  constexpr size_t kSmallBlockBytes = 1024, kAheadBytes = 8192, kLineBytes = 64;
  if constexpr (Block::kPanelBlockBytes > kSmallBlockBytes) {
    for (size_t i = 0; i < Block::kPanelBlockBytes; i += kLineBytes) __builtin_prefetch(w + kAheadBytes + i);
  }
}

// Block: template <int N> static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]).
template <class Block, int N>
void multiply_panel(const uint8_t* panel, size_t n_blocks, const TokenActivation* activations, float* const* out) {
  F acc[N];
  for (int n = 0; n < N; ++n) acc[n] = f_zero();
  for (size_t b = 0; b < n_blocks; ++b) {
    const uint8_t* w = panel + b * Block::kPanelBlockBytes;
    prefetch_ahead<Block>(w);
    Block::template multiply<N>(w, b, activations, acc);
  }
  for (int n = 0; n < N; ++n) f_store(out[n], acc[n]);
}

template <class Block>
constexpr PanelFormat panel_format(std::string_view format) {
  PanelFormat record{.format = format,
                     .activation_format = Block::kActivationFormat,
                     .block_elems = Block::kBlockElems,
                     .panel_block_bytes = Block::kPanelBlockBytes,
                     .pack = Block::pack,
                     .kernels = {}};
  record.kernels[0] = multiply_panel<Block, 1>;
  if constexpr (kTileTokens >= 2) record.kernels[1] = multiply_panel<Block, 2>;
  if constexpr (kTileTokens >= 4) {
    record.kernels[2] = multiply_panel<Block, 3>;
    record.kernels[3] = multiply_panel<Block, 4>;
  }
  if constexpr (kTileTokens >= 8) {
    record.kernels[4] = multiply_panel<Block, 5>;
    record.kernels[5] = multiply_panel<Block, 6>;
    record.kernels[6] = multiply_panel<Block, 7>;
    record.kernels[7] = multiply_panel<Block, 8>;
  }
  return record;
}

}  // namespace zinc::cpu::ZINC_ISA
