// Memory that a model takes on its backend, in bytes, before anything is uploaded or allocated: counted by the code of
// the backend that takes it (Backend::without_memory).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "engine/model_instance.h"

namespace zinc {

struct ModelMemory {
  size_t weight_bytes = 0;  // as the backend stores them
  size_t upload_bytes = 0;  // in addition, while they are uploaded
  size_t cache_bytes = 0;   // KV pages and recurrent states
  size_t plan_bytes = 0;    // activations, workspaces, tables, inputs and outputs of steps
  size_t bytes() const { return weight_bytes + std::max(upload_bytes, cache_bytes + plan_bytes); }
};

Result<ModelMemory> measure_memory(const ModelInstance& model, const CacheSizes& sizes, const Bucket& bucket);
// Of each of the model's devices; `draft_bucket`: with the plan of the MTP block, or nullptr.
Result<std::vector<ModelMemory>> measure_devices(const ModelInstance& model, const CacheSizes& sizes,
                                                 const Bucket& bucket, const Bucket* draft_bucket = nullptr);
ModelMemory sum_of(std::span<const ModelMemory> devices);

// "6.10 GB: 4.60 GB of weights, 1.10 GB of KV cache, 400 MB of activations and workspaces"
std::string memory_text(const ModelMemory& memory);

}  // namespace zinc
