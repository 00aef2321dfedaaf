// What the formats with blocks of 256 share. Nibbles come in four pairs of groups of 32, a pair in 8 vectors of 64
// bytes: vector v holds quants 4v..4v+3 of each of the 16 rows, the even group's in the low halves, the odd one's in
// the high. A block's vectors lie in the order in which the kernel reads them: weights that stream from memory keep to
// the bandwidth only as one ascending run of lines.
#pragma once

#include <cstring>

#include "backend/cpu/panel_kernel.h"
#include "tensor/k_scales.h"

namespace zinc::cpu::ZINC_ISA {

inline constexpr size_t kNibbleBytes = 2048;

// Low halves of even, and of odd in the high halves; the same of their high halves.
inline uint32_t join_low(uint32_t even, uint32_t odd) { return (even & 0x0F0F0F0F) | (odd & 0x0F0F0F0F) << 4; }
inline uint32_t join_high(uint32_t even, uint32_t odd) { return (even >> 4 & 0x0F0F0F0F) | (odd & 0xF0F0F0F0); }

// The head of Q4_K and Q5_K panels: d f16[16], dmin f16[16], scales u8[8][16], mins u8[4][16][2].
inline void pack_scale_mins(uint16_t d, uint16_t dmin, const uint8_t (&packed)[12], size_t row, uint8_t* out) {
  std::memcpy(out + row * 2, &d, 2);
  std::memcpy(out + 32 + row * 2, &dmin, 2);
  for (size_t g = 0; g < 8; ++g) {
    const ScaleMin group = k_scale_min(packed, g);
    out[64 + g * 16 + row] = static_cast<uint8_t>(group.scale);
    out[192 + g / 2 * 32 + row * 2 + g % 2] = static_cast<uint8_t>(group.min);
  }
}

// even and odd += the four quants of a pair's two groups; `at` is the even one's place in the column.
template <int N, auto dot = dot4>
void dot_pair(I (&even)[N], I (&odd)[N], B low, B high, const Column* c, size_t at) {
  for (int n = 0; n < N; ++n) {
    even[n] = dot(even[n], low, c[n].q + at);
    odd[n] = dot(odd[n], high, c[n].q + at + 32);
  }
}

template <int N>
void add_scaled(F (&sums)[N], const I (&dots)[N], F scale) {
  for (int n = 0; n < N; ++n) sums[n] = f_fma(i_to_f(dots[n]), scale, sums[n]);
}

// acc += x_scale * (d * sums - dmin * (mins . sums of the column's groups))
template <int N>
void finish_scale_mins(const uint8_t* w, size_t block, const Column* c, const F (&sums)[N], F (&acc)[N]) {
  const F d = f_load_half(reinterpret_cast<const uint16_t*>(w));
  const F dmin = f_load_half(reinterpret_cast<const uint16_t*>(w + 32));
  for (int n = 0; n < N; ++n) {
    I offset = i_zero();
    for (int pair = 0; pair < 4; ++pair) offset = dot2(offset, w + 192 + pair * 32, c[n].sum32 + block * 8 + pair * 2);
    const F x_scale = f_set(c[n].scale[block]);
    acc[n] = f_fma(f_mul(d, x_scale), sums[n], acc[n]);
    acc[n] = f_fnma(f_mul(dmin, x_scale), i_to_f(offset), acc[n]);
  }
}

}  // namespace zinc::cpu::ZINC_ISA
