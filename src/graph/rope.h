// The rotation frequency of each RoPE pair, including context extension (linear, YaRN). Backends compute a table from
// it when a plan is compiled.
#pragma once

#include <span>
#include <vector>

#include "graph/op.h"

namespace zinc {

// Radians per position for each of the n_dims / 2 pairs. factors: one divisor per pair, or empty.
std::vector<double> rope_frequencies(const RopeParams& params, std::span<const float> factors);

}  // namespace zinc
