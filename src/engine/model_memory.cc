#include "engine/model_memory.h"

#include "base/format_memory.h"

namespace zinc {

Result<std::vector<ModelMemory>> measure_devices(const ModelInstance& model, const CacheSizes& sizes,
                                                 const Bucket& bucket, const Bucket* draft_bucket) {
  const ModelLayout& layout = model.layout();
  ZINC_TRY(cache, layout.backend->allocate_cache(model.model().caches, sizes));
  ZINC_TRY(plan, layout.backend->compile(model.model().graph, *layout.weights, *cache, bucket));
  std::unique_ptr<Plan> draft_plan;
  if (draft_bucket) {
    ZINC_TRY(compiled, layout.backend->compile(*model.model().draft, *layout.weights, *cache, *draft_bucket));
    draft_plan = std::move(compiled);
  }
  std::vector<ModelMemory> devices;
  for (size_t d = 0; d < model.devices().size(); ++d) {
    devices.push_back({.weight_bytes = layout.weights->device_bytes_on(d),
                       .upload_bytes = layout.weights->upload_bytes_on(d),
                       .cache_bytes = cache->device_bytes_on(d),
                       .plan_bytes = plan->device_bytes_on(d) + (draft_plan ? draft_plan->device_bytes_on(d) : 0)});
  }
  return devices;
}

ModelMemory sum_of(std::span<const ModelMemory> devices) {
  ModelMemory all;
  for (const ModelMemory& device : devices) {
    all.weight_bytes += device.weight_bytes;
    all.upload_bytes += device.upload_bytes;
    all.cache_bytes += device.cache_bytes;
    all.plan_bytes += device.plan_bytes;
  }
  return all;
}

Result<ModelMemory> measure_memory(const ModelInstance& model, const CacheSizes& sizes, const Bucket& bucket) {
  ZINC_TRY(devices, measure_devices(model, sizes, bucket));
  return sum_of(devices);
}

std::string memory_text(const ModelMemory& memory) {
  return fmt::format("{}: {} of weights, {} of KV cache, {} of activations and workspaces",
                     format_memory(memory.bytes()), format_memory(memory.weight_bytes),
                     format_memory(memory.cache_bytes), format_memory(memory.plan_bytes));
}

}  // namespace zinc
