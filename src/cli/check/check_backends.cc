#include <fmt/core.h>

#include <algorithm>

#include "cli/check/check_report.h"
#include "hub/inventory.h"

namespace zinc {
namespace {

constexpr const char* kSection = "backends";

json::value text_or_null(const std::string& text) { return text.empty() ? json::value() : json::value(text); }
json::value number_or_null(size_t n) { return n == 0 ? json::value() : json::value(n); }

json::object device_json(const DeviceInfo& device) {
  return {{"name", device.name},
          {"memory_bytes", device.memory_bytes},
          {"free_bytes", number_or_null(device.free_bytes)},
          {"own_memory", device.has_dedicated_memory},
          {"driver", text_or_null(device.driver)},
          {"features", text_or_null(device.features)},
          {"unavailable_reason", text_or_null(device.unavailable_reason)}};
}

std::string device_text(const DeviceInfo& device) {
  std::string text = device.name;
  for (const std::string& more : {device.driver, device.features, device.unavailable_reason}) {
    if (!more.empty()) text += "; " + more;
  }
  return text;
}

// All devices of the backend; `opened` is the one it uses, or nullptr.
json::array add_devices(CheckReport& report, const BackendInfo& info, const DeviceInfo* opened) {
  json::array out;
  std::vector<DeviceInfo> devices;
  if (info.devices) devices = info.devices();
  if (devices.empty() && opened) devices.push_back(*opened);
  // The first of that name: there may be several identical GPUs.
  const auto opened_device = opened ? std::ranges::find(devices, opened->name, &DeviceInfo::name) : devices.end();
  if (opened_device != devices.end()) opened_device->free_bytes = opened->free_bytes;
  for (size_t i = 0; i < devices.size(); ++i) {
    out.push_back(device_json(devices[i]));
    if (!info.devices) continue;
    report.add(device_line(fmt::format("{} {}", info.name, i), devices[i], opened != nullptr));
    check_driver(report, devices[i]);
  }
  return out;
}

void check_backend(CheckReport& report, const BackendInfo& info, bool is_default) {
  json::object entry{{"name", info.name},
                     {"summary", info.summary},
                     {"usable", false},
                     {"default", is_default},
                     {"device", nullptr},
                     {"memory_bytes", nullptr},
                     {"read_bytes_per_s", nullptr},
                     {"unavailable_reason", nullptr},
                     {"devices", json::array()}};
  const Result<std::unique_ptr<Backend>> opened = info.open(0);
  if (!opened.ok()) {
    entry["unavailable_reason"] = opened.error().message;
    report.add(unusable_line(info.name, opened.error().message, report.gpus));
    entry["devices"] = add_devices(report, info, nullptr);
    report.backends.push_back(std::move(entry));
    return;
  }
  const DeviceInfo device = opened.value()->info();
  entry["usable"] = true;
  entry["device"] = device.name;
  entry["memory_bytes"] = device.memory_bytes;
  std::string message = fmt::format("{}{}", device.name, is_default ? " (default)" : "");
  if (is_default) {
    const DevicePeaks peaks = opened.value()->measure_peaks();
    entry["read_bytes_per_s"] = peaks.read_bytes_per_s;
    report.read_bytes_per_s = peaks.read_bytes_per_s;
    report.device = device;
    message += fmt::format("; {}", human_bytes(device.memory_bytes));
    if (peaks.read_bytes_per_s > 0) {
      message += fmt::format(", reads {:.1f} GB/s, {:.0f} GOP/s ({})", peaks.read_bytes_per_s / 1e9,
                             peaks.flops_per_s / 1e9, peaks.arithmetic);
    }
  }
  report.add({CheckStatus::ok, kSection, std::string(info.name), message});
  entry["devices"] = add_devices(report, info, &device);
  report.backends.push_back(std::move(entry));
}

}  // namespace

CheckLine device_line(std::string name, const DeviceInfo& device, bool is_backend_usable) {
  const bool is_available = device.unavailable_reason.empty();
  std::string text = fmt::format("{}; {}", device_text(device), human_bytes(device.memory_bytes));
  if (device.free_bytes > 0) text += fmt::format(", {} free", human_bytes(device.free_bytes));
  if (is_available && !is_backend_usable) text += "; not used";
  return {is_available && is_backend_usable ? CheckStatus::ok : CheckStatus::skip, kSection, std::move(name), text};
}

CheckLine unusable_line(std::string_view backend, const std::string& why, const std::set<GpuVendor>& gpus) {
  CheckLine line{CheckStatus::skip, kSection, std::string(backend), "not available: " + why};
  if (backend == "cuda" && gpus.contains(GpuVendor::nvidia)) {
    line.status = CheckStatus::warn;
    line.hint = why.find("libnvrtc") == std::string::npos
                    ? "sudo apt install nvidia-driver   # from the non-free section; nvidia-smi must work afterwards"
                    : "python3 -m pip install nvidia-cuda-nvrtc-cu12   # or the CUDA toolkit";
  } else if (backend == "vulkan" && (gpus.contains(GpuVendor::amd) || gpus.contains(GpuVendor::intel))) {
    line.status = CheckStatus::warn;
    line.hint = "sudo apt install libvulkan1 mesa-vulkan-drivers";
  }
  return line;
}

void check_driver(CheckReport& report, const DeviceInfo& device) {
  const size_t at = device.driver.find("Mesa ");
  if (device.driver.find("radv") == std::string::npos || at == std::string::npos) return;
  const std::string version = device.driver.substr(at);
  const bool is_slow = version.starts_with("Mesa 25.2");
  report.add({is_slow ? CheckStatus::warn : CheckStatus::ok, kSection, "mesa",
              is_slow ? version + " is known to be slower than 25.0 on RDNA4" : version,
              is_slow ? "apt-cache policy mesa-vulkan-drivers   # shows which versions can be installed" : ""});
  const bool has_matrices = device.features.find("cooperative matrices") != std::string::npos;
  report.add(
      {has_matrices ? CheckStatus::ok : CheckStatus::skip, kSection, "matrices",
       has_matrices ? "cooperative matrices are used" : "no cooperative matrices; RDNA3 and later GPUs have them",
       has_matrices ? "" : "RADV_PERFTEST=coop_matrix zinc check   # older Mesa needs this variable"});
}

void check_backends(CheckReport& report) {
  const std::string_view chosen = default_backend().name;
  for (const BackendInfo* const* b = kBackends; *b; ++b) check_backend(report, **b, (*b)->name == chosen);
  if (chosen == "reference") {
    report.add({CheckStatus::warn, kSection, "speed",
                "only the reference backend is available; it is meant for tests, expect seconds per token"});
  }
}

}  // namespace zinc
