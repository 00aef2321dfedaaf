// The CPU backend: packed weights, 8-bit activations, kernels for the best instruction set this processor has.
#include "backend/backend.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "backend/cpu/cpu_cache.h"
#include "backend/cpu/cpu_plan.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/weights.h"
#include "base/counted.h"
#include "base/memory_info.h"
#include "base/read_speed.h"

namespace zinc {
namespace cpu {
namespace {

// The best of a few bursts, each some milliseconds, of all threads together.
double measure_products_per_s(const Kernels& kernels, ThreadPool& threads) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kRounds = 10'000, kPiecesPerThread = 16;
  constexpr int kBursts = 8;
  double best = 0;
  for (int burst = 0; burst < kBursts; ++burst) {
    std::atomic<size_t> n_products = 0;
    const Clock::time_point start = Clock::now();
    threads.parallel_for(kPiecesPerThread * static_cast<size_t>(threads.n_threads()), [&](size_t begin, size_t end) {
      int32_t sum = 0;
      n_products += kernels.run_dot_products(kRounds * (end - begin), &sum);
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(n_products) / seconds);
  }
  return best;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, int n_threads)
      : kernels_(kernels), threads_(n_threads > 0 ? n_threads : default_thread_count()) {}

  DeviceInfo info() const override {
    return {fmt::format("CPU, {}, {}", kernels_.isa, counted(threads_.n_threads(), "thread")), physical_memory_bytes()};
  }

  DevicePeaks measure_peaks() override {
    return {.read_bytes_per_s = measure_read_bytes_per_s(threads_),
            .flops_per_s = 2 * measure_products_per_s(kernels_, threads_),
            .arithmetic = "int8"};
  }

  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const DoneWith& done_with) override {
    ZINC_TRY(weights, CpuWeights::pack(graphs, kernels_, threads_, done_with));
    return std::unique_ptr<DeviceWeights>(std::move(weights));
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    ZINC_TRY(cache, CpuCache::allocate(layers, sizes, kernels_, threads_));
    return std::unique_ptr<CacheMemory>(std::move(cache));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                        const Bucket& bucket) override {
    return CpuPlan::compile(graph, static_cast<CpuWeights&>(weights), static_cast<CpuCache&>(cache), kernels_, threads_,
                            bucket);
  }

 private:
  const Kernels& kernels_;
  ThreadPool threads_;
};

Result<std::unique_ptr<Backend>> open(int n_threads) {
  const std::vector<const Kernels*> usable = usable_kernels();
  if (usable.empty()) {
    return fail(ErrorCode::unsupported,
                "the cpu backend has no kernels for this processor (it needs {}); use --backend reference",
                kernels_need());
  }
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(*usable.front(), n_threads));
}

bool has_panels(const Format& format) {
  const std::vector<const Kernels*> usable = usable_kernels();
  return !usable.empty() && find_panel_format(*usable.front(), format.name);
}

}  // namespace
}  // namespace cpu

extern const BackendInfo k_backend_cpu = {.name = "cpu",
                                          .summary = "vectorised kernels on packed weights",
                                          .default_kv_format = "f16",
                                          .product_bits = 8,
                                          .rank = 1,
                                          .usable = [] { return !cpu::usable_kernels().empty(); },
                                          .open = cpu::open,
                                          .is_fast_format = cpu::has_panels};

}  // namespace zinc
