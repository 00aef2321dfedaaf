// Offsets of the activations in one arena; memory of dead values is reused. Computed once, when a plan is compiled.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace zinc {

struct MemoryPlan {
  std::vector<size_t> offsets;  // per value, in 4-byte elements; unspecified for weights
  size_t n_elems = 0;           // of the arena
};

// A backend that fuses nodes and runs them at the last one reads the inputs of the first ones only then.
struct ExtendedUse {
  Value value;
  int node = 0;
};

// REQUIRES: max_tokens, max_outputs > 0. With `keep_all` no memory is reused, so that every value can be read
// after the step.
MemoryPlan plan_memory(const Graph& graph, int max_tokens, int max_outputs, bool keep_all,
                       std::span<const ExtendedUse> extended_uses = {});

}  // namespace zinc
