// What kernels are written in beyond plain C++ and the instructions: pairs of halves, reductions within a warp,
// look-ups in small tables.
#pragma once

#include "backend/simt/instructions.h"
#include "backend/simt/params.h"

namespace zinc::simt {

// Brings a kernel's parameters into the constant cache, all lines at once, before they are needed one after the other.
template <class P>
ZINC_DEVICE void touch_params(const P& p) {
  constexpr int kLine = 64;
  const int at = static_cast<int>(threadIdx.x) % 32 * kLine;
  if (at < static_cast<int>(sizeof(P))) {
    int word = *reinterpret_cast<const int*>(reinterpret_cast<const char*>(&p) + at);
    settle(word);
  }
}

ZINC_DEVICE float bfloat_to_float(u16 b) { return __uint_as_float(static_cast<u32>(b) << 16); }
ZINC_DEVICE float low_half(u32 pair) { return half_to_float(static_cast<u16>(pair & 0xFFFFu)); }
ZINC_DEVICE float high_half(u32 pair) { return half_to_float(static_cast<u16>(pair >> 16)); }

ZINC_DEVICE int lane_id() { return static_cast<int>(threadIdx.x) & 31; }
ZINC_DEVICE int warp_id() { return static_cast<int>(threadIdx.x) >> 5; }

// Sums and maxima over `width` neighbouring lanes; every lane gets the same bits.
ZINC_DEVICE float lanes_sum(float x, int width) {
  for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}
ZINC_DEVICE int lanes_sum(int x, int width) {
  for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}
ZINC_DEVICE float lanes_max(float x, int width) {
  for (int step = width / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

// The largest over all lanes. REQUIRES: numbers that are not negative.
ZINC_DEVICE float lanes_largest(float x) {
#if __CUDA_ARCH__ >= 800
  return __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(x)));  // they are ordered as their bits are
#else
  return lanes_max(x, 32);
#endif
}

ZINC_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Bytes of `a` at the places the low four nibbles of `nibbles` name, from a table of 16 in four words.
ZINC_DEVICE u32 look_up_4(const u32 (&table)[4], u32 nibbles) {
  const u32 places = nibbles & 0x7777u;
  const u32 low = __byte_perm(table[0], table[1], places), high = __byte_perm(table[2], table[3], places);
  return __byte_perm(low, high, 0x3210u | ((nibbles & 0x8888u) >> 1));
}

// All eight nibbles of `packed` looked up: the low ones of each byte in one word, the high ones in the other.
ZINC_DEVICE void look_up_8(const u32 (&table)[4], u32 packed, int& low, int& high) {
  const u32 first = look_up_4(table, packed & 0xFFFFu), second = look_up_4(table, packed >> 16);
  low = static_cast<int>(__byte_perm(first, second, 0x6420u));
  high = static_cast<int>(__byte_perm(first, second, 0x7531u));
}

}  // namespace zinc::simt
