// Four floats in a vector: four candidates of a search side by side, each of which sums over the elements in their
// order, or four elements. GCC and clang compile it for SSE2 and NEON; the order of sums is in the code, so that
// results do not depend on the processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zinc {

inline constexpr size_t kLanes = 4;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
using IntLanes = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline Lanes load_lanes(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}
inline void store_lanes(Lanes lanes, float* to) { std::memcpy(to, &lanes, sizeof(lanes)); }
inline Lanes all_lanes(float x) { return Lanes{x, x, x, x}; }
inline Lanes min_lanes(Lanes a, Lanes b) { return a < b ? a : b; }
inline Lanes max_lanes(Lanes a, Lanes b) { return a > b ? a : b; }

inline Lanes counting_lanes() { return Lanes{0, 1, 2, 3}; }
inline Lanes clamp_lanes(Lanes x, float low, float high) {
  return min_lanes(all_lanes(high), max_lanes(all_lanes(low), x));
}
inline float sum(Lanes x) { return (x[0] + x[1]) + (x[2] + x[3]); }
inline float least(Lanes x) {
  const float a = x[0] < x[1] ? x[0] : x[1], b = x[2] < x[3] ? x[2] : x[3];
  return a < b ? a : b;
}
inline float largest(Lanes x) { return -least(-x); }

inline size_t index_of_largest(Lanes x) {
  const size_t a = x[1] > x[0] ? 1 : 0, b = x[3] > x[2] ? 3 : 2;
  return x[b] > x[a] ? b : a;
}

// To the nearest integer, halves to even: adding 1.5 * 2^23 leaves no bits below 1. REQUIRES: |x| <= 2^22.
inline constexpr float kRoundingAddend = 12582912.0F;
inline Lanes round_lanes(Lanes x) { return (x + kRoundingAddend) - kRoundingAddend; }
inline float round_to_integer(float x) { return (x + kRoundingAddend) - kRoundingAddend; }

// Integers in floats to integers.
inline IntLanes to_integers(Lanes x) { return __builtin_convertvector(x, IntLanes); }
inline void store_lanes(IntLanes x, int32_t* to) { std::memcpy(to, &x, sizeof(x)); }

}  // namespace zinc
