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

struct Maker {
  std::string_view pci_id, name;
  GpuMaker maker;
};
constexpr Maker kMakers[] = {{"0x10de", "NVIDIA", GpuMaker::nvidia},
                             {"0x1002", "AMD", GpuMaker::amd},
                             {"0x8086", "Intel", GpuMaker::intel},
                             {"", "unknown maker", GpuMaker::other}};

const Maker& maker_of(const std::string& pci_id) {
  return *std::ranges::find_if(kMakers, [&](const Maker& m) { return m.pci_id.empty() || m.pci_id == pci_id; });
}

// "card0" and so on, not its connectors ("card0-DP-1"); in order.
std::vector<fs::path> cards_below(const fs::path& folder) {
  std::vector<fs::path> cards;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("card") && name.find('-') == std::string::npos) cards.push_back(it->path());
  }
  std::ranges::sort(cards);
  return cards;
}

// Each thing that is known to cost speed on AMD cards: whether it does here, and the line that changes it.
void check_amd(CheckReport& report, const fs::path& root, const fs::path& card) {
  const auto add = [&](bool is_good, std::string name, std::string good, std::string bad, std::string hint) {
    report.add({is_good ? CheckStatus::ok : CheckStatus::warn, kSection, std::move(name),
                is_good ? std::move(good) : std::move(bad), is_good ? "" : std::move(hint)});
  };
  const std::string ecc = first_line(root / "sys/module/amdgpu/parameters/ras_enable");
  if (!ecc.empty()) {
    add(ecc != "1", "ecc", "GPU memory is not slowed down by ECC",
        "GPU memory is checked by ECC, which takes up to a tenth of its speed",
        "add amdgpu.ras_enable=0 to the kernel's command line");
  }
  const std::string policy = first_line(root / "sys/module/pcie_aspm/parameters/policy");
  if (!policy.empty()) {
    add(policy.find("[performance]") != std::string::npos, "pcie", "PCIe does not save power",
        fmt::format("PCIe may save power: {}", policy),
        "echo performance | sudo tee /sys/module/pcie_aspm/parameters/policy");
  }
  const fs::path level_file = card / "device" / "power_dpm_force_performance_level";
  const std::string level = first_line(level_file);
  if (!level.empty()) {
    add(level == "auto", "clocks", "the card chooses its clocks itself",
        fmt::format("the card's clocks are forced to '{}', which is slower than letting it choose", level),
        fmt::format("echo auto | sudo tee /sys/class/drm/{}/device/power_dpm_force_performance_level",
                    card.filename().string()));
  }
}

}  // namespace

void check_gpus(CheckReport& report, const fs::path& root) {
  for (const fs::path& card : cards_below(root / "sys/class/drm")) {
    const std::string id = first_line(card / "device" / "vendor");
    if (id.empty()) continue;
    const Maker& maker = maker_of(id);
    report.gpus.insert(maker.maker);
    report.add({CheckStatus::ok, kSection, card.filename().string(),
                fmt::format("{} {}", maker.name, first_line(card / "device" / "device"))});
    if (maker.maker == GpuMaker::amd) check_amd(report, root, card);
  }
  // The driver's own word, such as "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14".
  const std::string nvidia = first_line(root / "proc/driver/nvidia/version");
  if (!nvidia.empty()) {
    report.gpus.insert(GpuMaker::nvidia);
    report.add({CheckStatus::ok, kSection, "nvidia", nvidia});
  }
  if (report.gpus.empty()) report.add({CheckStatus::skip, kSection, "none", "this system shows no GPU"});
}

}  // namespace zinc
