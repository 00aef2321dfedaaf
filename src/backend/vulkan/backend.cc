// The Vulkan backend: weights in panels, each step one submission of recorded commands. See README.md.
#include "backend/backend.h"

#include <filesystem>

#include "backend/gpu/gpu_backend.h"
#include "backend/gpu/nvidia_clock.h"
#include "backend/vulkan/device.h"
#include "backend/vulkan/peaks.h"
#include "backend/vulkan/plan.h"
#include "backend/vulkan/weights.h"

namespace zinc {
namespace vulkan {
namespace {

std::string features_of(const Capabilities& device) {
  std::string text = fmt::format("Vulkan {}.{}, subgroups of {}", VK_API_VERSION_MAJOR(device.api_version),
                                 VK_API_VERSION_MINOR(device.api_version), subgroup_size(device));
  if (device.has_fast_integer_dot) text += ", int8 dot products";
  if (device.coopmat_k > 0) text += ", cooperative matrices";
  return text;
}

// Reports a failed test of the dispatch order and its consequence.
std::string dispatch_order_note(const Device& device) {
  if (!device.tuning().starts_in_order || device.starts_in_order()) return "";
  return ", decode with barriers (workgroups do not start in the order of their dispatches)";
}

DeviceInfo device_info(const Capabilities& device, size_t n_free) {
  const std::string missing = missing_feature(device);
  return {.name = device.name,
          .memory_bytes = device.device_memory_bytes,
          .free_bytes = n_free,
          .has_dedicated_memory = has_dedicated_memory(device),
          .driver = device.driver,
          .features = features_of(device),
          .unavailable_reason = missing.empty() ? "" : fmt::format("it lacks {}", missing)};
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> out;
  for (const Capabilities& device : Device::all()) out.push_back(device_info(device, 0));
  return out;
}

class VulkanBackend final : public gpu::GpuBackend<Device, VulkanPlan> {
 public:
  using GpuBackend::GpuBackend;
  DeviceInfo info() const override {
    DeviceInfo info = device_info(device_.capabilities(), device_.free_bytes());
    info.features += dispatch_order_note(device_);
    return info;
  }
  DevicePeaks measure_peaks() override { return measure_device_peaks(device_); }
  double clock_mhz() override { return gpu::nvidia_clock_mhz(device_.capabilities().name); }  // other GPUs: unknown
};

// Checks the device files first, so that machines without a GPU do not load the driver.
bool is_available() {
  static const bool available = [] {
    std::error_code ignored;
    return (std::filesystem::exists("/dev/dri", ignored) || std::filesystem::exists("/dev/nvidiactl", ignored)) &&
           Device::has_gpu();
  }();
  return available;
}

Result<std::unique_ptr<Backend>> open_device(std::string_view device_name, int n_threads) {
  ZINC_TRY(device, Device::shared(device_name));
  return std::unique_ptr<Backend>(std::make_unique<VulkanBackend>(*device, n_threads));
}

Result<std::unique_ptr<Backend>> open(int n_threads) { return open_device("", n_threads); }

const std::vector<std::string_view> kKvFormatNames = gpu::names_of(kernel_formats().kv_formats);

bool has_panels(const Format& format) { return gpu::find_panel_format(format.name) && has_format(format.name); }

}  // namespace
}  // namespace vulkan

extern const BackendInfo k_backend_vulkan = {
    .name = "vulkan",
    .summary = "GPUs with a Vulkan 1.3 driver; vulkan:NAME selects the device whose name contains NAME",
    .default_kv_format = "f16",
    .kv_formats = vulkan::kKvFormatNames,
    .matmul_activation_bits = 8,
    .attention_activation_bits = 16,
    .step_tokens = 2048,
    .scan_chunk_tokens = vulkan::kDeltaChunk,
    .can_sample_on_device = true,
    .priority = 2,
    .is_available = vulkan::is_available,
    .open = vulkan::open,
    .has_packed_kernel = vulkan::has_panels,
    .dequantized_bits = 16,
    .devices = vulkan::devices,
    .step_kernels = vulkan::step_kernels,
    .open_device = vulkan::open_device};

}  // namespace zinc
