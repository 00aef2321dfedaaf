// Memory that an engine takes, known before anything is uploaded or allocated. Engine::create uses it, and `zinc check`
// prints it.
#pragma once

#include "cache/cache_plan.h"
#include "engine/engine.h"
#include "engine/model_memory.h"

namespace zinc {

struct EngineMemory : ModelMemory {  // with that of the MTP block, if it is loaded, and of the draft model
  CachePlan cache;
  CacheSizes draft_cache = {};            // of the draft model
  std::vector<ModelMemory> devices = {};  // of each device of the model
};

// Within the limits. out_of_memory: it does not fit; the message has the numbers and what would fit.
// EngineOptions::cache_bytes is the size of both models' caches. REQUIRES: options.step_tokens > 0.
Result<EngineMemory> plan_engine_memory(const ModelInstance& model, const MemoryLimits& limits,
                                        const EngineOptions& options, const ModelInstance* draft_model = nullptr);

// Of each device, with a cache for one request: of EngineOptions::context positions, or kLeastContext. For choosing
// which layers a device gets. REQUIRES: options.step_tokens > 0.
Result<std::vector<ModelMemory>> least_engine_memory(const ModelInstance& model, const EngineOptions& options);
inline constexpr int kLeastContext = 4096;  // positions of a model that is split automatically, if it has so many

// The memory of a model's devices by what it has to fit: each device, and behind them each host of which several
// devices take the memory.
std::vector<ModelMemory> with_shared_host(const ModelInstance& model, std::span<const ModelMemory> devices);
MemoryLimits with_shared_host(const ModelInstance& model, const MemoryLimits& limits);
// "cpu and vulkan, which share the host's memory": the devices of such a host, by its number among them.
std::string shared_host_text(const ModelInstance& model, size_t host);

// The least limit with which plan_engine_memory grants this memory, if EngineOptions::cache_bytes is 0: the cache may
// take half of what the model leaves.
size_t least_limit(const ModelMemory& memory);

// One token of every request, and prompt chunks or drafts in addition.
Bucket largest_step(const EngineOptions& options);
// Of a draft model or an MTP block.
Bucket largest_draft_step(const EngineOptions& options);
// The same, for sequences of up to `context` positions.
Bucket with_rope_scalings(Bucket step, const Graph& graph, int context);

}  // namespace zinc
