// Shared by the formats with blocks of 256. Nibbles are stored as four pairs of groups of 32, a pair in 8 vectors of 64
// bytes: vector v holds quants 4v..4v+3 of each of the 16 rows, the even group's in the low nibbles, the odd group's in
// the high nibbles. Vectors are stored in the order of use: weights reach the memory bandwidth only as one ascending
// stream of cache lines.
#pragma once

#include <cstring>

#include "backend/cpu/panel_kernel.h"
#include "tensor/k_scales.h"

namespace zinc::cpu::ZINC_ISA {

inline constexpr int kVectorBytes = 64;              // of 16 rows
inline constexpr int kPairBytes = 8 * kVectorBytes;  // the nibbles of a pair of groups
inline constexpr int kNibbleBytes = 4 * kPairBytes;

// Offsets in the header of Q4_K and Q5_K panels: d f16[16], dmin f16[16], scales u8[8][16], mins u8[4][16][2].
inline constexpr int kDminOffset = 32, kScalesOffset = 64, kMinsOffset = 192, kScaleMinBytes = 320;

// The low nibbles of even, with those of odd as high nibbles; then the same for their high nibbles.
inline uint32_t join_low(uint32_t even, uint32_t odd) { return (even & 0x0F0F0F0F) | (odd & 0x0F0F0F0F) << 4; }
inline uint32_t join_high(uint32_t even, uint32_t odd) { return (even >> 4 & 0x0F0F0F0F) | (odd & 0xF0F0F0F0); }

inline void pack_scale_mins(uint16_t d, uint16_t dmin, const uint8_t (&packed)[12], size_t row, uint8_t* out) {
  std::memcpy(out + row * 2, &d, 2);
  std::memcpy(out + kDminOffset + row * 2, &dmin, 2);
  for (size_t g = 0; g < 8; ++g) {
    const ScaleMin group = k_scale_min(packed, g);
    out[kScalesOffset + g * 16 + row] = static_cast<uint8_t>(group.scale);
    out[kMinsOffset + g / 2 * 32 + row * 2 + g % 2] = static_cast<uint8_t>(group.min);
  }
}

// Adds the dot products of a pair's two groups to even and odd; `k` is the index of the even group's first input.
template <int N, auto dot = dot4>
void dot_pair(I (&even)[N], I (&odd)[N], B low, B high, const TokenActivation* x, size_t k) {
  for (int n = 0; n < N; ++n) {
    even[n] = dot(even[n], low, x[n].q + k);
    odd[n] = dot(odd[n], high, x[n].q + k + 32);
  }
}

template <int N>
void add_scaled(F (&sums)[N], const I (&dots)[N], F scale) {
  for (int n = 0; n < N; ++n) sums[n] = f_fma(i_to_f(dots[n]), scale, sums[n]);
}

// acc += x_scale * (d * sums - dmin * (mins . sums of the activations' groups))
template <int N>
void finish_scale_mins(const uint8_t* w, size_t block, const TokenActivation* x, const F (&sums)[N], F (&acc)[N]) {
  const F d = f_load_half(reinterpret_cast<const uint16_t*>(w));
  const F dmin = f_load_half(reinterpret_cast<const uint16_t*>(w + kDminOffset));
  for (int n = 0; n < N; ++n) {
    I offset = i_zero();
    for (int pair = 0; pair < 4; ++pair)
      offset = dot2(offset, w + kMinsOffset + pair * 32, x[n].sum32 + block * 8 + pair * 2);
    const F x_scale = f_set(x[n].scale[block]);
    acc[n] = f_fma(f_mul(d, x_scale), sums[n], acc[n]);
    acc[n] = f_fnma(f_mul(dmin, x_scale), i_to_f(offset), acc[n]);
  }
}

}  // namespace zinc::cpu::ZINC_ISA
