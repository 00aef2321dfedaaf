// What an engine takes of memory, by plain arithmetic before anything is allocated: what Engine::create goes by, and
// what `zinc check` tells.
#pragma once

#include <vector>

#include "cache/cache_plan.h"
#include "engine/engine.h"

namespace zinc {

struct EngineMemory {
  size_t weight_bytes = 0;
  size_t step_bytes = 0;  // values of the steps that plans are compiled for
  CachePlan cache;
  size_t bytes() const { return weight_bytes + step_bytes + cache.n_bytes; }
};

// Of a model whose weights take `weight_bytes`, within `limit` bytes in all. out_of_memory: it does not fit, with the
// numbers. REQUIRES: options.step_tokens > 0.
Result<EngineMemory> plan_engine_memory(const Model& model, const Format& kv_format, size_t weight_bytes, size_t limit,
                                        const EngineOptions& options);

// Sizes of steps that plans are compiled for: one row, a few, a row for every request, and prompts beside them.
std::vector<int> step_sizes(const EngineOptions& options);
Bucket bucket_of(int n_tokens, int max_sequences);

}  // namespace zinc
