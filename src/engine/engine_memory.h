// Memory an engine needs, computed before anything is allocated. Engine::create uses it, and `zinc check` prints it.
#pragma once

#include <vector>

#include "cache/cache_plan.h"
#include "engine/engine.h"

namespace zinc {

struct EngineMemory {
  size_t weight_bytes = 0;
  size_t activation_bytes = 0;  // activations of the compiled plans
  CachePlan cache;
  size_t bytes() const { return weight_bytes + activation_bytes + cache.n_bytes; }
};

// For a model with `weight_bytes` of weights, within `limit` bytes in total. out_of_memory: it does not fit; the
// message has the numbers. REQUIRES: options.step_tokens > 0.
Result<EngineMemory> plan_engine_memory(const Model& model, const Format& kv_format, size_t weight_bytes, size_t limit,
                                        const EngineOptions& options);

// Step sizes for which plans are compiled: one row, a few, one row per request, and prompt chunks in addition.
std::vector<int> step_sizes(const EngineOptions& options);
Bucket bucket_of(int n_tokens, int max_sequences);

}  // namespace zinc
