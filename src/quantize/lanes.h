// Four candidates of a search side by side in a vector: each lane sums over the elements in their order, so a result
// does not depend on the processor, and no sum across lanes is needed. GCC and clang compile it for SSE2 and NEON.
#pragma once

#include <cstddef>
#include <cstring>

namespace zinc {

inline constexpr size_t kLanes = 4;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

inline Lanes load_lanes(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}
inline Lanes all_lanes(float x) { return Lanes{x, x, x, x}; }
inline Lanes min_lanes(Lanes a, Lanes b) { return a < b ? a : b; }
inline Lanes max_lanes(Lanes a, Lanes b) { return a > b ? a : b; }

// To the nearest integer, halves to even: adding 1.5 * 2^23 leaves no bits below 1. REQUIRES: |x| <= 2^22.
inline constexpr float kRoundingAddend = 12582912.0F;
inline Lanes round_lanes(Lanes x) { return (x + kRoundingAddend) - kRoundingAddend; }
inline float round_to_integer(float x) { return (x + kRoundingAddend) - kRoundingAddend; }

}  // namespace zinc
