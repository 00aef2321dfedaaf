// Peak rate of the integer units: independent 8-bit dot products in registers, enough to hide their latency, without
// memory accesses. Matmuls are compared with it.
#include "backend/cpu/kernel/functions.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

// One and a half times a tile's accumulators: the latency is 4 to 5 cycles, and a core can start two per cycle.
constexpr int kChains = kTileTokens + kTileTokens / 2;
constexpr int kUnrolled = 16;  // GCC 12 copies every accumulator at the end of a round: 1 copy per 16 does not matter

}  // namespace

size_t run_dot_products(size_t n_rounds, int32_t* sink) {
  static const uint8_t kWeights[64] = {1, 2, 3};
  static const int8_t kQuads[4] = {1, -1, 2, -2};
  const B w = b_load(kWeights);
  const int8_t* quads = kQuads;
  I sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = i_set(c);
  for (size_t round = 0; round < n_rounds; ++round) {
#pragma GCC unroll 16
    for (int step = 0; step < kUnrolled; ++step) {
      for (int c = 0; c < kChains; ++c) {
        asm volatile("" : "+r"(quads));  // otherwise identical dot products would be computed once
        sums[c] = dot4(sums[c], w, quads);
      }
    }
  }
  I total = i_zero();
  for (int c = 0; c < kChains; ++c) total = i_add(total, sums[c]);
  *sink = i_sum(total);
  constexpr size_t kMacsPerDot = 64;
  return n_rounds * kUnrolled * kChains * kMacsPerDot;
}

}  // namespace zinc::cpu::ZINC_ISA
