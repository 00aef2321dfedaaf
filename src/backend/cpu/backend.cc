// The CPU backend: packed weights, 8-bit activations, kernels for the best instruction set of this processor.
#include "backend/backend.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "backend/cpu/cpu_cache.h"
#include "backend/cpu/cpu_plan.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/weights.h"
#include "base/memory_bandwidth.h"
#include "base/memory_info.h"
#include "base/pluralize.h"
#include "base/processor_info.h"

namespace zinc {
namespace cpu {
namespace {

// The best of a few bursts of some milliseconds each, on all threads.
double measure_macs_per_s(const Kernels& kernels, ThreadPool& threads) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kRounds = 10'000, kPiecesPerThread = 16;
  constexpr int kBursts = 8;
  double best = 0;
  for (int burst = 0; burst < kBursts; ++burst) {
    std::atomic<size_t> n_macs = 0;
    const Clock::time_point start = Clock::now();
    threads.parallel_for(kPiecesPerThread * static_cast<size_t>(threads.n_threads()), [&](size_t begin, size_t end) {
      int32_t sum = 0;
      n_macs += kernels.run_dot_products(kRounds * (end - begin), &sum);
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(n_macs) / seconds);
  }
  return best;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, std::shared_ptr<ThreadPool> threads, AllocateBuffer allocate)
      : kernels_(kernels), pool_(std::move(threads)), threads_(*pool_), allocate_(allocate) {}

  DeviceInfo info() const override {
    return {fmt::format("CPU, {}, {}", kernels_.isa, pluralize(threads_.n_threads(), "thread")),
            physical_memory_bytes()};
  }

  DevicePeaks measure_peaks() override {
    return {.read_bytes_per_s = measure_read_bytes_per_s(threads_),
            .flops_per_s = 2 * measure_macs_per_s(kernels_, threads_),
            .arithmetic = "int8"};
  }

  double clock_mhz() override { return processor_mhz(); }

  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const ReleaseFilePages& release_file_pages) override {
    ZINC_TRY(weights, CpuWeights::pack(graphs, kernels_, threads_, allocate_, release_file_pages));
    return std::unique_ptr<DeviceWeights>(std::move(weights));
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    ZINC_TRY(cache, CpuCache::allocate(layers, sizes, kernels_, threads_, allocate_));
    return std::unique_ptr<CacheMemory>(std::move(cache));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                        const Bucket& bucket) override {
    return CpuPlan::compile(graph, static_cast<CpuWeights&>(weights), static_cast<CpuCache&>(cache), kernels_, threads_,
                            allocate_, bucket);
  }

  std::unique_ptr<Backend> without_memory() override {
    return std::make_unique<CpuBackend>(kernels_, pool_, AlignedBuffer::reserve);
  }

 private:
  const Kernels& kernels_;
  std::shared_ptr<ThreadPool> pool_;
  ThreadPool& threads_;
  AllocateBuffer allocate_;
};

Result<std::unique_ptr<Backend>> open(int n_threads) {
  const std::vector<const Kernels*> supported = supported_kernels();
  if (supported.empty()) {
    return fail(ErrorCode::unsupported,
                "the cpu backend has no kernels for this processor (it needs {}); use --backend reference",
                required_isa());
  }
  auto threads = std::make_shared<ThreadPool>(n_threads > 0 ? n_threads : default_thread_count());
  return std::unique_ptr<Backend>(
      std::make_unique<CpuBackend>(*supported.front(), std::move(threads), AlignedBuffer::allocate));
}

constexpr std::array<std::string_view, 4> kKvFormats = {"f32", "f16", "q8_0", "q4_0"};  // of kernel/kv_pages.h

bool has_panels(const Format& format) {
  const std::vector<const Kernels*> supported = supported_kernels();
  return !supported.empty() && find_panel_format(*supported.front(), format.name);
}

}  // namespace
}  // namespace cpu

extern const BackendInfo k_backend_cpu = {.name = "cpu",
                                          .summary = "vectorized kernels on packed weights",
                                          .default_kv_format = "f16",
                                          .kv_formats = cpu::kKvFormats,
                                          .matmul_activation_bits = 8,
                                          .priority = 1,
                                          .is_available = [] { return !cpu::supported_kernels().empty(); },
                                          .open = cpu::open,
                                          .has_packed_kernel = cpu::has_panels};

}  // namespace zinc
