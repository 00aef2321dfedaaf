// The CUDA backend: weights in panels, each step one replay of a captured graph. See README.md.
#include "backend/backend.h"

#include <charconv>
#include <filesystem>

#include "backend/cuda/cache.h"
#include "backend/cuda/device.h"
#include "backend/cuda/peaks.h"
#include "backend/cuda/plan.h"
#include "backend/cuda/weights.h"
#include "base/thread_pool.h"

namespace zinc {
namespace cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(Device& device, int n_threads)
      : device_(device), threads_(n_threads > 0 ? n_threads : default_thread_count()) {}

  DeviceInfo info() const override { return {device_.name(), device_.memory_bytes()}; }
  DevicePeaks measure_peaks() override { return measure_device_peaks(device_); }

  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const DoneWith& done_with) override {
    ZINC_TRY(weights, CudaWeights::upload(graphs, device_, threads_, done_with));
    return std::unique_ptr<DeviceWeights>(std::move(weights));
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    ZINC_TRY(cache, CudaCache::allocate(layers, sizes, device_));
    return std::unique_ptr<CacheMemory>(std::move(cache));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                        const Bucket& bucket) override {
    return CudaPlan::compile(graph, static_cast<CudaWeights&>(weights), static_cast<CudaCache&>(cache), device_,
                             bucket);
  }

 private:
  Device& device_;
  ThreadPool threads_;
};

// The driver's device file comes first: without it nothing is opened.
bool is_usable() {
  static const bool usable = std::filesystem::exists("/dev/nvidiactl") && Device::shared().ok() && Nvrtc::open().ok();
  return usable;
}

Result<std::unique_ptr<Backend>> open(int n_threads) {
  ZINC_TRY(device, Device::shared());
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(*device, n_threads));
}

// "1": the second GPU.
Result<std::unique_ptr<Backend>> open_named(std::string_view number, int n_threads) {
  int ordinal = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ordinal);
  if (error != std::errc() || end != number.data() + number.size()) {
    return fail(ErrorCode::invalid_input, "'cuda:{}' names no GPU; say its number as nvidia-smi does, cuda:0", number);
  }
  ZINC_TRY(device, Device::shared(ordinal));
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(*device, n_threads));
}

}  // namespace
}  // namespace cuda

extern const BackendInfo k_backend_cuda = {
    .name = "cuda",
    .summary = "NVIDIA GPUs from Turing on; kernels are compiled when first used",
    .default_kv_format = "f16",
    .product_bits = 8,
    .attention_bits = 16,
    .step_tokens = 2048,
    .state_chunk = 64,
    .draws_tokens = true,
    .rank = 3,
    .usable = cuda::is_usable,
    .open = cuda::open,
    .open_named = cuda::open_named};

}  // namespace zinc
