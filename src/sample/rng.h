// Counter-based random numbers: a function of (seed, stream, position) only. Without state, a sample does not depend on
// batching, on other requests or on how often a step is repeated. Philox 4x32-10 (Salmon, Moraes, Dror and Shaw,
// "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace zinc {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

class Rng {
 public:
  explicit Rng(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  double uniform(uint64_t position) const;  // in [0, 1), 53 bits

 private:
  uint64_t seed_;
  uint64_t stream_;
};

uint64_t random_seed();  // for a request without a seed

}  // namespace zinc
