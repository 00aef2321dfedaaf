// Where each activation lies in one arena, reusing the place of values no later node reads. Decided once, at compile.
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

// A backend that runs several nodes as one, at the last of them, reads the first ones' inputs only then.
struct LaterUse {
  Value value;
  int node = 0;
};

// REQUIRES: max_tokens, max_outputs > 0. With `keep_all` every value has a place of its own, so that a trace can read
// them after the step.
MemoryPlan plan_memory(const Graph& graph, int max_tokens, int max_outputs, bool keep_all,
                       std::span<const LaterUse> later_uses = {});

}  // namespace zinc
