#include "backend/gpu/layout_backend.h"

namespace zinc::gpu {
namespace {

class LayoutPlan final : public Plan {
 public:
  LayoutPlan(std::unique_ptr<PlanMemory> memory, size_t device_bytes)
      : memory_(std::move(memory)), device_bytes_(device_bytes) {}
  const PlanMemory& memory() const { return *memory_; }
  size_t device_bytes() const override { return device_bytes_; }
  void start(const StepInputs&) override { ZINC_CHECK(false); }
  Result<StepOutput> wait() override { ZINC_CHECK(false); }
  std::span<const float> value(Value) const override { ZINC_CHECK(false); }

 private:
  std::unique_ptr<PlanMemory> memory_;
  size_t device_bytes_;
};

class LayoutBackend final : public Backend {
 public:
  LayoutBackend(const LayoutDevice& device, DeviceInfo info, LayoutOptions options)
      : device_(device), info_(std::move(info)), options_(std::move(options)) {}

  DeviceInfo info() const override { return info_; }
  DevicePeaks measure_peaks() override { return {}; }

  // Keeps the file's pages: the weights are not read.
  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const ReleaseFilePages&) override {
    LayoutUploader uploader(options_.formats, options_.staging_bytes);
    ZINC_TRY(weights, Weights::upload(graphs, device_, uploader, [](auto) {}));
    return std::unique_ptr<DeviceWeights>(std::move(weights));
  }

  Result<std::unique_ptr<DeviceWeights>> stream(std::span<const Graph* const> graphs) override {
    ZINC_TRY(weights, Weights::stream(graphs, device_,
                                      std::make_unique<LayoutUploader>(options_.formats, options_.staging_bytes)));
    return std::unique_ptr<DeviceWeights>(std::move(weights));
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    ZINC_TRY(cache, Cache::allocate(layers, sizes, device_, options_.formats));
    return std::unique_ptr<CacheMemory>(std::move(cache));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                        const Bucket& bucket) override {
    const LayoutOptions::Model model{graph, static_cast<Weights&>(weights), static_cast<Cache&>(cache)};
    const auto make_workspace = [&](Device& device, const Bucket& sizes) {
      return options_.make_workspace(model, device, sizes);
    };
    const LayoutPlan* const other = static_cast<const LayoutPlan*>(bucket.shares_memory_with);
    ZINC_TRY(memory, PlanMemory::allocate(graph, bucket, device_, make_workspace, options_.has_batch_classes,
                                          other ? &other->memory() : nullptr));
    size_t n_bytes = memory->device_bytes() + options_.plan_bytes;
    for (size_t i = 0; options_.class_bytes && i < memory->classes().size(); ++i) {
      ZINC_TRY(of_class, options_.class_bytes(model, memory->workspace(i)));
      n_bytes += of_class;
    }
    return std::unique_ptr<Plan>(std::make_unique<LayoutPlan>(std::move(memory), n_bytes));
  }

  std::unique_ptr<Backend> without_memory() override {
    return std::make_unique<LayoutBackend>(device_, info_, options_);
  }

 private:
  LayoutDevice device_;
  DeviceInfo info_;
  LayoutOptions options_;
};

}  // namespace

std::unique_ptr<Backend> make_layout_backend(const Device& device, DeviceInfo info, LayoutOptions options) {
  const LayoutDevice layout({true, device.is_on_device(Memory::upload), device.is_on_device(Memory::readback)});
  return std::make_unique<LayoutBackend>(layout, std::move(info), std::move(options));
}

}  // namespace zinc::gpu
