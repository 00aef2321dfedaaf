#include "backend/gpu/nvidia_clock.h"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>

#include "base/shared_library.h"

namespace zinc::gpu {
namespace {

constexpr int kNvmlSuccess = 0, kSmClock = 1;
using NvmlDevice = struct NvmlDeviceHandle*;

// NVML's functions by their stable names.
struct Nvml {
  int (*init)() = nullptr;
  int (*device_count)(unsigned* count) = nullptr;
  int (*device)(unsigned index, NvmlDevice* device) = nullptr;
  int (*device_name)(NvmlDevice device, char* name, unsigned length) = nullptr;
  int (*clock)(NvmlDevice device, int type, unsigned* mhz) = nullptr;
};

std::optional<Nvml> open_nvml() {
  static const Result<SharedLibrary> library = SharedLibrary::open("libnvidia-ml.so.1");
  if (!library.ok()) return std::nullopt;
  Nvml nvml;
  bool has_all = true;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.value().find(name));
    has_all = has_all && function;
  };
  bind(nvml.init, "nvmlInit_v2");
  bind(nvml.device_count, "nvmlDeviceGetCount_v2");
  bind(nvml.device, "nvmlDeviceGetHandleByIndex_v2");
  bind(nvml.device_name, "nvmlDeviceGetName");
  bind(nvml.clock, "nvmlDeviceGetClockInfo");
  if (!has_all || nvml.init() != kNvmlSuccess) return std::nullopt;
  return nvml;
}

}  // namespace

double nvidia_clock_mhz(std::string_view name) {
  static const std::optional<Nvml> nvml = open_nvml();
  unsigned n_devices = 0, highest = 0;
  if (!nvml || nvml->device_count(&n_devices) != kNvmlSuccess) return 0;
  for (unsigned i = 0; i < n_devices; ++i) {
    NvmlDevice device = nullptr;
    std::array<char, 128> text{};
    unsigned mhz = 0;
    const bool is_known = nvml->device(i, &device) == kNvmlSuccess &&
                          nvml->device_name(device, text.data(), text.size()) == kNvmlSuccess &&
                          nvml->clock(device, kSmClock, &mhz) == kNvmlSuccess;
    if (is_known && name == text.data()) highest = std::max(highest, mhz);
  }
  return highest;
}

}  // namespace zinc::gpu
