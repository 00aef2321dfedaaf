#include "engine/model_memory.h"

#include "base/format_memory.h"

namespace zinc {

Result<ModelMemory> measure_memory(const ModelInstance& model, const CacheSizes& sizes, const Bucket& bucket) {
  const ModelLayout& layout = model.layout();
  ZINC_TRY(cache, layout.backend->allocate_cache(model.model().caches, sizes));
  ZINC_TRY(plan, layout.backend->compile(model.model().graph, *layout.weights, *cache, bucket));
  return ModelMemory{.weight_bytes = layout.weights->device_bytes(),
                     .upload_bytes = layout.weights->upload_bytes(),
                     .cache_bytes = cache->device_bytes(),
                     .plan_bytes = plan->device_bytes()};
}

std::string memory_text(const ModelMemory& memory) {
  return fmt::format("{}: {} of weights, {} of KV cache, {} of activations and workspaces",
                     format_memory(memory.bytes()), format_memory(memory.weight_bytes),
                     format_memory(memory.cache_bytes), format_memory(memory.plan_bytes));
}

}  // namespace zinc
