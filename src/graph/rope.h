// The angle each rotated pair of a head turns per position: the one place that knows about stretched contexts.
// Backends make a table of it at compile time.
#pragma once

#include <span>
#include <vector>

#include "graph/op.h"

namespace zinc {

// Radians per position for each of the n_dims / 2 pairs. factors: one divisor per pair, or empty.
std::vector<double> rope_frequencies(const RopeParams& params, std::span<const float> factors);

}  // namespace zinc
