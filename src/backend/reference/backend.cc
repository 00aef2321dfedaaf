// The reference backend: interprets the graph node by node. Slow, simple and correct.
#include "backend/backend.h"

#include <array>

#include "backend/reference/reference_cache.h"
#include "backend/reference/reference_plan.h"
#include "base/memory_bandwidth.h"
#include "base/memory_info.h"
#include "base/processor_info.h"
#include "base/thread_pool.h"

namespace zinc {
namespace reference {
namespace {

class ReferenceWeights final : public DeviceWeights {
 public:
  size_t device_bytes() const override { return 0; }  // used in place, in the mapped file
};

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(int n_threads) : threads_(n_threads > 0 ? n_threads : default_thread_count()) {}

  DeviceInfo info() const override { return {"reference interpreter", physical_memory_bytes()}; }

  DevicePeaks measure_peaks() override { return {.read_bytes_per_s = measure_read_bytes_per_s(threads_)}; }

  double clock_mhz() override { return processor_mhz(); }

  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const>, const ReleaseFilePages&) override {
    return std::unique_ptr<DeviceWeights>(std::make_unique<ReferenceWeights>());
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    if (sizes.kv_format == nullptr || sizes.kv_format->quantize == nullptr) {
      return fail(ErrorCode::unsupported, "the reference backend does not support KV cache format '{}'",
                  sizes.kv_format ? sizes.kv_format->name : "(none)");
    }
    if (Status fits = check_kv_blocks(*sizes.kv_format, layers); !fits.ok()) return fits.error();
    return std::unique_ptr<CacheMemory>(std::make_unique<ReferenceCache>(layers, sizes));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights&, CacheMemory& cache,
                                        const Bucket& bucket) override {
    return std::unique_ptr<Plan>(
        std::make_unique<ReferencePlan>(graph, static_cast<ReferenceCache&>(cache), threads_, bucket));
  }

 private:
  ThreadPool threads_;
};

constexpr std::array<std::string_view, 4> kKvFormats = {"f32", "f16", "q8_0", "fp8"};

Result<std::unique_ptr<Backend>> open(int n_threads) {
  return std::unique_ptr<Backend>(std::make_unique<ReferenceBackend>(n_threads));
}

}  // namespace
}  // namespace reference

extern const BackendInfo k_backend_reference = {.name = "reference",
                                                .summary = "float32 interpreter: slow, the reference for all others",
                                                .default_kv_format = "f32",
                                                .kv_formats = reference::kKvFormats,
                                                .matmul_activation_bits = 32,
                                                .priority = 0,
                                                .is_available = [] { return true; },
                                                .open = reference::open};

}  // namespace zinc
