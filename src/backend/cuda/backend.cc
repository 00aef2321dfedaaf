// The CUDA backend: weights in packed panels, each step one replay of a captured CUDA graph. See README.md.
#include "backend/backend.h"

#include "backend/cuda/device.h"
#include "backend/cuda/peaks.h"
#include "backend/cuda/plan.h"
#include "backend/cuda/weights.h"
#include "backend/gpu/gpu_backend.h"
#include "backend/gpu/nvidia_clock.h"

namespace zinc {
namespace cuda {
namespace {

// Driver properties, without opening the device.
DeviceInfo describe(const DriverApi& api, const DeviceChoice& choice, size_t n_free) {
  DeviceInfo info{.name = "NVIDIA GPU", .free_bytes = n_free, .has_dedicated_memory = true};
  int id = 0, version = 0;
  if (api.device_get(&id, choice.ordinal) != kSuccess) return info;
  DeviceLimits limits = query_limits(api, id);
  if (choice.major > 0) limits = limits_of_capability(limits, choice.major, choice.minor);
  info.name = limits.name;
  api.device_memory(&info.memory_bytes, id);
  if (api.driver_version(&version) == kSuccess)
    info.driver = fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  info.features = fmt::format("compute capability {}.{}, {} multiprocessors{}", limits.major, limits.minor,
                              limits.n_sms, limits.has_tensor_cores() ? ", tensor cores" : "");
  info.unavailable_reason = unsupported_reason(limits.major, limits.minor);
  return info;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> out;
  const Result<const DriverApi*> api = load_driver();
  int n_devices = 0;
  if (!api.ok() || api.value()->device_count(&n_devices) != kSuccess) return out;
  const Result<Device*> first = Device::shared();
  for (int i = 0; i < n_devices; ++i) {
    out.push_back(describe(*api.value(), {.ordinal = i}, i == 0 && first.ok() ? first.value()->free_bytes() : 0));
  }
  return out;
}

class CudaBackend final : public gpu::GpuBackend<Device, CudaPlan> {
 public:
  CudaBackend(Device& device, const DeviceChoice& choice, int n_threads)
      : GpuBackend(device, n_threads), choice_(choice) {}
  DeviceInfo info() const override { return describe(device_.api(), choice_, device_.free_bytes()); }
  DevicePeaks measure_peaks() override { return measure_device_peaks(device_); }
  double clock_mhz() override { return gpu::nvidia_clock_mhz(device_.limits().name); }

 private:
  DeviceChoice choice_;
};

Result<std::unique_ptr<Backend>> open_gpu(const DeviceChoice& choice, int n_threads) {
  ZINC_TRY(device, Device::shared(choice));
  if (const Result<Nvrtc> compiler = Nvrtc::open(); !compiler.ok()) return compiler.error();
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(*device, choice, n_threads));
}

bool is_available() {
  static const bool available = open_gpu({}, 1).ok();
  return available;
}

Result<std::unique_ptr<Backend>> open(int n_threads) { return open_gpu({}, n_threads); }

// "1": the second GPU.
Result<std::unique_ptr<Backend>> open_device(std::string_view text, int n_threads) {
  ZINC_TRY(choice, parse_device(text));
  return open_gpu(choice, n_threads);
}

const std::vector<std::string_view> kKvFormatNames = gpu::names_of(kernel_formats().kv_formats);

bool has_panels(const Format& format) {
  return gpu::find_panel_format(format.name) && simt::host::has_format(format.name);
}

}  // namespace
}  // namespace cuda

extern const BackendInfo k_backend_cuda = {.name = "cuda",
                                           .summary = "NVIDIA GPUs, Turing or newer; kernels are compiled on first use",
                                           .default_kv_format = "f16",
                                           .kv_formats = cuda::kKvFormatNames,
                                           .matmul_activation_bits = 8,
                                           .attention_activation_bits = 16,
                                           .step_tokens = 2048,
                                           .scan_chunk_tokens = 64,
                                           .can_sample_on_device = true,
                                           .priority = 3,
                                           .is_available = cuda::is_available,
                                           .open = cuda::open,
                                           .has_packed_kernel = cuda::has_panels,
                                           .dequantized_bits = 16,
                                           .devices = cuda::devices,
                                           .step_kernels = cuda::step_kernels,
                                           .open_device = cuda::open_device};

}  // namespace zinc
