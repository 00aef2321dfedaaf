// What the backends of GPUs do alike: weights, caches and plans on one device. A backend derives its own class, which
// describes and measures the device. `Device` has upload_weights() and make_weight_uploader() in its namespace; `Plan`
// has compile() and layout_options(device), the memory of plans without taking it.
#pragma once

#include "backend/gpu/layout_backend.h"
#include "base/thread_pool.h"

namespace zinc::gpu {

template <class Device, class Plan>
class GpuBackend : public Backend {
 public:
  GpuBackend(Device& device, int n_threads)
      : device_(device), threads_(n_threads > 0 ? n_threads : default_thread_count()) {}

  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const ReleaseFilePages& release_file_pages) final {
    ZINC_TRY(weights, upload_weights(graphs, device_, threads_, release_file_pages));
    return std::unique_ptr<DeviceWeights>(std::move(weights));
  }
  Result<std::unique_ptr<DeviceWeights>> stream(std::span<const Graph* const> graphs) final {
    ZINC_TRY(weights, Weights::stream(graphs, device_, make_weight_uploader(device_, threads_)));
    return std::unique_ptr<DeviceWeights>(std::move(weights));
  }
  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) final {
    ZINC_TRY(cache, Cache::allocate(layers, sizes, device_, Plan::layout_options(device_).formats));
    return std::unique_ptr<CacheMemory>(std::move(cache));
  }
  Result<std::unique_ptr<zinc::Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                              const Bucket& bucket) final {
    return Plan::compile(graph, static_cast<Weights&>(weights), static_cast<Cache&>(cache), device_, bucket);
  }
  std::unique_ptr<Backend> without_memory() final {
    return make_layout_backend(device_, info(), Plan::layout_options(device_));
  }

 protected:
  Device& device_;

 private:
  ThreadPool threads_;
};

}  // namespace zinc::gpu
