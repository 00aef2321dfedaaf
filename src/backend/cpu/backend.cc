// The CPU backend: packed weights, 8-bit activations, kernels for the best instruction set this processor has.
#include "backend/backend.h"

#include "backend/cpu/cpu_cache.h"
#include "backend/cpu/cpu_plan.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/weights.h"
#include "base/memory_info.h"

namespace zinc {
namespace cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, int n_threads)
      : kernels_(kernels), threads_(n_threads > 0 ? n_threads : default_thread_count()) {}

  DeviceInfo info() const override {
    return {fmt::format("CPU, {}, {} threads", kernels_.isa, threads_.n_threads()), physical_memory_bytes()};
  }

  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs) override {
    ZINC_TRY(weights, CpuWeights::pack(graphs, kernels_, threads_));
    return std::unique_ptr<DeviceWeights>(std::move(weights));
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    ZINC_TRY(cache, CpuCache::allocate(layers, sizes, kernels_));
    return std::unique_ptr<CacheMemory>(std::move(cache));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                        const Bucket& bucket) override {
    return std::unique_ptr<Plan>(std::make_unique<CpuPlan>(graph, static_cast<CpuWeights&>(weights),
                                                           static_cast<CpuCache&>(cache), kernels_, threads_, bucket));
  }

 private:
  const Kernels& kernels_;
  ThreadPool threads_;
};

Result<std::unique_ptr<Backend>> open(int n_threads) {
  const std::vector<const Kernels*> usable = usable_kernels();
  if (usable.empty()) {
    return fail(ErrorCode::unsupported,
                "the cpu backend has no kernels for this processor (it needs AVX2); use --backend reference");
  }
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(*usable.front(), n_threads));
}

}  // namespace
}  // namespace cpu

extern const BackendInfo k_backend_cpu = {.name = "cpu",
                                          .summary = "vectorised kernels on packed weights",
                                          .default_kv_format = "f16",
                                          .product_bits = 8,
                                          .rank = 1,
                                          .usable = [] { return !cpu::usable_kernels().empty(); },
                                          .open = cpu::open};

}  // namespace zinc
