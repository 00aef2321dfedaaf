// Common device functions: f16 pairs, warp reductions, codebook look-ups.
#pragma once

#include "backend/simt/params.h"
#include "backend/simt/ptx.h"

namespace zinc::simt {

// Loads all lines of a kernel's parameters into the constant cache at once, instead of one miss after the other.
template <class P>
ZINC_DEVICE void prefetch_params(const P& p) {
  constexpr int kLine = 64;
  const int offset = static_cast<int>(threadIdx.x) % 32 * kLine;
  if (offset < static_cast<int>(sizeof(P))) {
    int word = *reinterpret_cast<const int*>(reinterpret_cast<const char*>(&p) + offset);
    keep_in_register(word);
  }
}

ZINC_DEVICE float bfloat_to_float(u16 b) { return __uint_as_float(static_cast<u32>(b) << 16); }
ZINC_DEVICE float low_half(u32 pair) { return half_to_float(static_cast<u16>(pair & 0xFFFFu)); }
ZINC_DEVICE float high_half(u32 pair) { return half_to_float(static_cast<u16>(pair >> 16)); }

ZINC_DEVICE int lane_id() { return static_cast<int>(threadIdx.x) & 31; }
ZINC_DEVICE int warp_id() { return static_cast<int>(threadIdx.x) >> 5; }

// Reductions over `width` neighboring lanes; every lane gets the same bits.
ZINC_DEVICE float warp_sum(float x, int width) {
  for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}
ZINC_DEVICE int warp_sum(int x, int width) {
  for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}
ZINC_DEVICE float warp_max(float x, int width) {
  for (int step = width / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

// REQUIRES: x >= 0.
ZINC_DEVICE float warp_max_nonnegative(float x) {
#if __CUDA_ARCH__ >= 800
  return __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(x)));  // ordered like their bits
#else
  return warp_max(x, 32);
#endif
}

ZINC_DEVICE float neg_inf() { return __int_as_float(0xFF800000); }

ZINC_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Whether this block is the last of n to arrive; it then sees the others' writes.
ZINC_DEVICE bool is_last_block(int* counter, int n) {
  __shared__ int is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomic_inc_acq_rel(counter) == n - 1;
    if (is_last) *counter = 0;
  }
  __syncthreads();
  return is_last;
}

// A count of the step's upload, which is complete before the step's first launch starts: also before
// wait_dependency().
ZINC_DEVICE int step_count(const int* count) { return __ldcg(count); }

// Looks up the low four nibbles of `nibbles` in a table of 16 bytes.
ZINC_DEVICE u32 lookup_4(const u32 (&table)[4], u32 nibbles) {
  const u32 selectors = nibbles & 0x7777u;
  const u32 low = __byte_perm(table[0], table[1], selectors), high = __byte_perm(table[2], table[3], selectors);
  return __byte_perm(low, high, 0x3210u | ((nibbles & 0x8888u) >> 1));
}

// Looks up all eight nibbles of `packed`: the low nibbles of its bytes in one word, the high ones in the other.
ZINC_DEVICE void lookup_8(const u32 (&table)[4], u32 packed, int& low, int& high) {
  const u32 first = lookup_4(table, packed & 0xFFFFu), second = lookup_4(table, packed >> 16);
  low = static_cast<int>(__byte_perm(first, second, 0x6420u));
  high = static_cast<int>(__byte_perm(first, second, 0x7531u));
}

}  // namespace zinc::simt
