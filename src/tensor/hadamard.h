// The Hadamard transform of blocks of 32 elements, times a factor. It is its own inverse, times 32. Keys in four bits
// are transformed before they are quantized, and queries like them, which leaves scores as they are: an outlier, which
// would take the whole range of its block's scale, is spread over the block (ADR 0045).
#pragma once

#include <cstddef>
#include <span>

namespace zinc {

inline constexpr float kKeyFactor = 0.25f, kQueryFactor = 0.125f;  // powers of two: exact

// REQUIRES: whole blocks.
inline void hadamard_32(std::span<float> x, float factor) {
  for (size_t block = 0; block + 32 <= x.size(); block += 32) {
    for (size_t step = 1; step < 32; step *= 2) {
      for (size_t i = block; i < block + 32; ++i) {
        if ((i & step) != 0) continue;
        const float a = x[i], b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
    }
    for (size_t i = block; i < block + 32; ++i) x[i] *= factor;
  }
}

}  // namespace zinc
