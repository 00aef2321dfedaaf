#include <fmt/core.h>

#include <algorithm>
#include <fstream>

#include "cli/check/check_report.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;
constexpr const char* kSection = "gpus";

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

struct KnownVendor {
  std::string_view pci_id, name;
  GpuVendor vendor;
};
constexpr KnownVendor kVendors[] = {{"0x10de", "NVIDIA", GpuVendor::nvidia},
                                    {"0x1002", "AMD", GpuVendor::amd},
                                    {"0x8086", "Intel", GpuVendor::intel},
                                    {"", "unknown vendor", GpuVendor::other}};

const KnownVendor& vendor_of(const std::string& pci_id) {
  return *std::ranges::find_if(kVendors, [&](const KnownVendor& m) { return m.pci_id.empty() || m.pci_id == pci_id; });
}

// "card0" and so on, not its connectors ("card0-DP-1"); in order.
std::vector<fs::path> drm_cards(const fs::path& folder) {
  std::vector<fs::path> cards;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("card") && name.find('-') == std::string::npos) cards.push_back(it->path());
  }
  std::ranges::sort(cards);
  return cards;
}

// Settings known to slow down AMD GPUs, each with the command that changes it.
void check_amd(CheckReport& report, const fs::path& root, const fs::path& card) {
  const auto add = [&](bool is_good, std::string name, std::string good, std::string bad, std::string hint) {
    report.add({is_good ? CheckStatus::ok : CheckStatus::warn, kSection, std::move(name),
                is_good ? std::move(good) : std::move(bad), is_good ? "" : std::move(hint)});
  };
  const std::string ecc = first_line(root / "sys/module/amdgpu/parameters/ras_enable");
  if (!ecc.empty()) {
    add(ecc != "1", "ecc", "ECC of the GPU memory is off",
        "ECC of the GPU memory is on, which costs up to 10 % of its bandwidth",
        "add amdgpu.ras_enable=0 to the kernel command line");
  }
  const std::string policy = first_line(root / "sys/module/pcie_aspm/parameters/policy");
  if (!policy.empty()) {
    add(policy.find("[performance]") != std::string::npos, "pcie", "PCIe power saving (ASPM) is off",
        fmt::format("PCIe power saving (ASPM) may be on: {}", policy),
        "echo performance | sudo tee /sys/module/pcie_aspm/parameters/policy");
  }
  const fs::path level_file = card / "device" / "power_dpm_force_performance_level";
  const std::string level = first_line(level_file);
  if (!level.empty()) {
    add(level == "auto", "clocks", "the GPU manages its own clocks",
        fmt::format("the GPU clocks are forced to '{}', which is slower than 'auto'", level),
        fmt::format("echo auto | sudo tee /sys/class/drm/{}/device/power_dpm_force_performance_level",
                    card.filename().string()));
  }
}

}  // namespace

void check_gpus(CheckReport& report, const fs::path& root) {
  for (const fs::path& card : drm_cards(root / "sys/class/drm")) {
    const std::string id = first_line(card / "device" / "vendor");
    if (id.empty()) continue;
    const KnownVendor& known = vendor_of(id);
    report.gpus.insert(known.vendor);
    report.add({CheckStatus::ok, kSection, card.filename().string(),
                fmt::format("{} {}", known.name, first_line(card / "device" / "device"))});
    if (known.vendor == GpuVendor::amd) check_amd(report, root, card);
  }
  // The driver's version line, such as "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14".
  const std::string nvidia = first_line(root / "proc/driver/nvidia/version");
  if (!nvidia.empty()) {
    report.gpus.insert(GpuVendor::nvidia);
    report.add({CheckStatus::ok, kSection, "nvidia", nvidia});
  }
  if (report.gpus.empty()) report.add({CheckStatus::skip, kSection, "none", "no GPU found"});
}

}  // namespace zinc
