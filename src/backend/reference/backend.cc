// The reference backend: interprets the graph node by node. Slow, simple and correct.
#include "backend/backend.h"

#include <array>
#include <map>

#include "backend/reference/reference_cache.h"
#include "backend/reference/reference_plan.h"
#include "base/memory_bandwidth.h"
#include "base/memory_info.h"
#include "base/processor_info.h"
#include "base/thread_pool.h"

namespace zinc {
namespace reference {
namespace {

// Used in place, in the mapped file.
class ReferenceWeights final : public DeviceWeights {
 public:
  explicit ReferenceWeights(std::span<const Graph* const> graphs) {
    std::map<std::string_view, size_t> n_bytes;  // by tensor name
    for (const Graph* graph : graphs) {
      for (int i = 0; i < graph->n_values(); ++i) {
        const ValueInfo& info = graph->info(Value{i});
        if (info.is_weight()) n_bytes.emplace(info.name, info.weight.bytes.size());
      }
    }
    for (const auto& [name, n] : n_bytes) device_bytes_ += n;
  }
  size_t device_bytes() const override { return device_bytes_; }

 private:
  size_t device_bytes_ = 0;
};

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend(std::shared_ptr<ThreadPool> threads, AllocateBuffer allocate)
      : pool_(std::move(threads)), threads_(*pool_), allocate_(allocate) {}

  DeviceInfo info() const override { return {"reference interpreter", physical_memory_bytes()}; }

  DevicePeaks measure_peaks() override { return {.read_bytes_per_s = measure_read_bytes_per_s(threads_)}; }

  double clock_mhz() override { return processor_mhz(); }

  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const ReleaseFilePages&) override {
    return std::unique_ptr<DeviceWeights>(std::make_unique<ReferenceWeights>(graphs));
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    if (sizes.kv_format == nullptr || sizes.kv_format->quantize == nullptr) {
      return fail(ErrorCode::unsupported, "the reference backend does not support KV cache format '{}'",
                  sizes.kv_format ? sizes.kv_format->name : "(none)");
    }
    if (Status fits = check_kv_blocks(*sizes.kv_format, layers); !fits.ok()) return fits.error();
    ZINC_TRY(cache, ReferenceCache::allocate(layers, sizes, allocate_));
    return std::unique_ptr<CacheMemory>(std::move(cache));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights&, CacheMemory& cache,
                                        const Bucket& bucket) override {
    return ReferencePlan::compile(graph, static_cast<ReferenceCache&>(cache), threads_, allocate_, bucket);
  }

  std::unique_ptr<Backend> without_memory() override {
    return std::make_unique<ReferenceBackend>(pool_, AlignedBuffer::reserve);
  }

 private:
  std::shared_ptr<ThreadPool> pool_;
  ThreadPool& threads_;
  AllocateBuffer allocate_;
};

constexpr std::array<std::string_view, 5> kKvFormats = {"f32", "f16", "q8_0", "fp8", "q4_0"};

Result<std::unique_ptr<Backend>> open(int n_threads) {
  auto threads = std::make_shared<ThreadPool>(n_threads > 0 ? n_threads : default_thread_count());
  return std::unique_ptr<Backend>(std::make_unique<ReferenceBackend>(std::move(threads), AlignedBuffer::allocate));
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
