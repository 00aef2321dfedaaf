// The Vulkan backend: weights in panels, each step one submission of recorded commands. See README.md.
#include "backend/backend.h"

#include <filesystem>

#include "backend/vulkan/cache.h"
#include "backend/vulkan/device.h"
#include "backend/vulkan/peaks.h"
#include "backend/vulkan/plan.h"
#include "backend/vulkan/weights.h"
#include "base/thread_pool.h"

namespace zinc {
namespace vulkan {
namespace {

std::string features_of(const Capabilities& device) {
  std::string text = fmt::format("Vulkan {}.{}, subgroups of {}", VK_API_VERSION_MAJOR(device.api_version),
                                 VK_API_VERSION_MINOR(device.api_version), subgroup_for(device));
  if (device.has_fast_integer_dot) text += ", int8 products";
  if (device.matrix_depth > 0) text += ", cooperative matrices";
  return text;
}

// What a device was found to lack when it was opened, and what is done about it.
std::string found_of(const Device& device) {
  if (!device.tuning().starts_in_order || device.starts_in_order()) return "";
  return ", barriers within a token's step (its workgroups do not start in the order of their dispatches)";
}

DeviceInfo describe(const Capabilities& device, size_t n_free) {
  const bool is_own =
      device.type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU || device.type == VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU;
  const std::string lack = missing(device);
  return {.name = device.name,
          .memory_bytes = device.device_memory_bytes,
          .free_bytes = n_free,
          .has_own_memory = is_own,
          .driver = device.driver,
          .features = features_of(device),
          .why_not = lack.empty() ? "" : fmt::format("it lacks {}", lack)};
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> out;
  for (const Capabilities& device : Device::all()) out.push_back(describe(device, 0));
  return out;
}

class VulkanBackend final : public Backend {
 public:
  VulkanBackend(Device& device, int n_threads)
      : device_(device), threads_(n_threads > 0 ? n_threads : default_thread_count()) {}

  DeviceInfo info() const override {
    DeviceInfo info = describe(device_.capabilities(), device_.free_bytes());
    info.features += found_of(device_);
    return info;
  }
  DevicePeaks measure_peaks() override { return measure_device_peaks(device_); }

  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const DoneWith& done_with) override {
    ZINC_TRY(weights, VulkanWeights::upload(graphs, device_, threads_, done_with));
    return std::unique_ptr<DeviceWeights>(std::move(weights));
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    ZINC_TRY(cache, VulkanCache::allocate(layers, sizes, device_));
    return std::unique_ptr<CacheMemory>(std::move(cache));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                        const Bucket& bucket) override {
    return VulkanPlan::compile(graph, static_cast<VulkanWeights&>(weights), static_cast<VulkanCache&>(cache), device_,
                               bucket);
  }

 private:
  Device& device_;
  ThreadPool threads_;
};

// A card's device file comes first: without one nothing is opened.
bool is_usable() {
  static const bool usable = [] {
    std::error_code ignored;
    return (std::filesystem::exists("/dev/dri", ignored) || std::filesystem::exists("/dev/nvidiactl", ignored)) &&
           Device::has_real_card();
  }();
  return usable;
}

Result<std::unique_ptr<Backend>> open_named(std::string_view device_name, int n_threads) {
  ZINC_TRY(device, Device::shared(device_name));
  return std::unique_ptr<Backend>(std::make_unique<VulkanBackend>(*device, n_threads));
}

Result<std::unique_ptr<Backend>> open(int n_threads) { return open_named("", n_threads); }

bool has_panels(const Format& format) { return find_panel_format(format.name) != nullptr; }

}  // namespace
}  // namespace vulkan

extern const BackendInfo k_backend_vulkan = {
    .name = "vulkan",
    .summary = "GPUs with a Vulkan 1.3 driver; vulkan:NAME takes the one whose name contains NAME",
    .default_kv_format = "f16",
    .product_bits = 8,
    .attention_bits = 16,
    .step_tokens = 2048,
    .state_chunk = vulkan::kDeltaChunk,
    .rank = 2,
    .usable = vulkan::is_usable,
    .open = vulkan::open,
    .is_fast_format = vulkan::has_panels,
    .decoded_bits = 16,
    .devices = vulkan::devices,
    .open_named = vulkan::open_named};

}  // namespace zinc
