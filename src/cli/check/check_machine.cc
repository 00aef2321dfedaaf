#include <fmt/core.h>
#include <sys/utsname.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "backend/backend.h"
#include "base/memory_info.h"
#include "base/thread_pool.h"
#include "cli/check/check_report.h"
#include "hub/inventory.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;
constexpr const char* kMachine = "machine";

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  utsname system = {};
  return ::uname(&system) == 0 ? system.machine : "unknown";
}

void check_governor(CheckReport& report) {
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (governor != "powersave" || fs::exists("/sys/devices/system/cpu/intel_pstate")) return;
  report.add({CheckStatus::warn, kMachine, "clock", "the processor's governor is 'powersave': it stays at a low clock",
              "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"});
}

// The driver's own word, such as "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14".
void check_nvidia(CheckReport& report) {
  const std::string version = first_line("/proc/driver/nvidia/version");
  if (!version.empty()) report.add({CheckStatus::ok, "gpus", "nvidia", version});
}

// What is known to cost speed on AMD cards, each with the line that changes it.
void check_amd(CheckReport& report) {
  if (first_line("/sys/module/amdgpu/parameters/ras_enable") == "1") {
    report.add({CheckStatus::warn, "gpus", "ecc",
                "GPU memory is checked by ECC, which takes up to a tenth of its speed",
                "add amdgpu.ras_enable=0 to the kernel's command line"});
  }
  const std::string policy = first_line("/sys/module/pcie_aspm/parameters/policy");
  if (!policy.empty() && policy.find("[performance]") == std::string::npos) {
    report.add({CheckStatus::warn, "gpus", "pcie", fmt::format("PCIe may save power: {}", policy),
                "echo performance | sudo tee /sys/module/pcie_aspm/parameters/policy"});
  }
}

std::string_view vendor_name(const std::string& id) {
  return id == "0x10de" ? "NVIDIA" : id == "0x1002" ? "AMD" : id == "0x8086" ? "Intel" : "unknown maker";
}

}  // namespace

void check_machine(CheckReport& report) {
  const std::string processor = processor_name();
  const int n_cores = default_thread_count();
  const size_t n_bytes = physical_memory_bytes(), n_free = available_memory_bytes();
  report.machine = {
      {"processor", processor}, {"cores", n_cores}, {"memory_bytes", n_bytes}, {"available_memory_bytes", n_free}};
  report.add({CheckStatus::ok, kMachine, "processor", fmt::format("{}, {} cores usable", processor, n_cores)});
  const bool is_low = n_free < n_bytes / 10;
  report.add({is_low ? CheckStatus::warn : CheckStatus::ok, kMachine, "memory",
              fmt::format("{} ({} bytes), {} of it free", human_bytes(n_bytes), n_bytes, human_bytes(n_free)),
              is_low ? "ps aux --sort=-rss | head   # shows what takes it" : ""});
  check_governor(report);
}

void check_backends(CheckReport& report) {
  const std::string_view chosen = default_backend().name;
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    const BackendInfo& info = **b;
    const bool is_default = info.name == chosen;
    json::object entry{{"name", info.name},           {"summary", info.summary}, {"usable", false},
                       {"default", is_default},       {"device", nullptr},       {"memory_bytes", nullptr},
                       {"read_bytes_per_s", nullptr}, {"why_not", nullptr}};
    const Result<std::unique_ptr<Backend>> opened = info.open(0);
    if (!opened.ok()) {
      entry["why_not"] = opened.error().message;
      report.add({CheckStatus::ok, "backends", std::string(info.name), "not usable here: " + opened.error().message});
      report.backends.push_back(std::move(entry));
      continue;
    }
    const DeviceInfo device = opened.value()->info();
    entry["usable"] = true;
    entry["device"] = device.name;
    entry["memory_bytes"] = device.memory_bytes;
    std::string message = fmt::format("{}{}", device.name, is_default ? " (the default)" : "");
    if (is_default) {
      const DevicePeaks peaks = opened.value()->measure_peaks();
      entry["read_bytes_per_s"] = peaks.read_bytes_per_s;
      report.read_bytes_per_s = peaks.read_bytes_per_s;
      report.device_bytes = device.memory_bytes;
      message += fmt::format("; {}, reads {:.1f} GB/s, {:.0f} G{} operations/s", human_bytes(device.memory_bytes),
                             peaks.read_bytes_per_s / 1e9, peaks.flops_per_s / 1e9, peaks.arithmetic);
    }
    report.add({CheckStatus::ok, "backends", std::string(info.name), message});
    report.backends.push_back(std::move(entry));
  }
  if (chosen == "reference") {
    report.add({CheckStatus::warn, "backends", "speed",
                "only the reference backend works here, which is for tests: expect seconds per token"});
  }
}

void check_gpus(CheckReport& report) {
  std::error_code error;
  bool has_amd = false;
  for (const fs::directory_entry& card : fs::directory_iterator("/sys/class/drm", error)) {
    const std::string name = card.path().filename().string();
    if (!name.starts_with("card") || name.find('-') != std::string::npos) continue;
    const std::string vendor = first_line(card.path() / "device" / "vendor");
    has_amd = has_amd || vendor == "0x1002";
    if (!vendor.empty()) {
      report.add({CheckStatus::ok, "gpus", name,
                  fmt::format("{} {}", vendor_name(vendor), first_line(card.path() / "device" / "device"))});
    }
  }
  check_nvidia(report);
  if (has_amd) check_amd(report);
}

void check_models(CheckReport& report, const HubSettings& settings) {
  size_t n_here = 0;
  uint64_t n_bytes = 0;
  for (const ModelEntry& entry : list_models(settings, this_machine())) {
    if (entry.path.empty()) continue;
    ++n_here;
    n_bytes += entry.n_bytes;
  }
  std::error_code error;
  fs::path folder = settings.cache;
  while (!folder.empty() && !fs::exists(folder, error) && folder != folder.parent_path()) folder = folder.parent_path();
  const fs::space_info space = fs::space(folder, error);
  report.add({n_here > 0 ? CheckStatus::ok : CheckStatus::warn, "models", "here",
              fmt::format("{} {}, {}; in {}", n_here, n_here == 1 ? "model" : "models", human_bytes(n_bytes),
                          settings.cache.string()),
              n_here > 0 ? "" : fmt::format("zinc pull {}", kDefaultModelId)});
  constexpr uint64_t kLittleSpace = 2'000'000'000;
  if (error) return;
  report.add({space.available < kLittleSpace ? CheckStatus::warn : CheckStatus::ok, "models", "disk",
              fmt::format("{} free for more", human_bytes(space.available)),
              space.available < kLittleSpace ? "zinc list --installed, then zinc rm NAME" : ""});
}

}  // namespace zinc
