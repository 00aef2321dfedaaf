#include <fmt/core.h>
#include <sys/utsname.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/memory_info.h"
#include "base/pluralize.h"
#include "base/thread_pool.h"
#include "cli/check/check_report.h"
#include "hub/disk_space.h"
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
  report.add({CheckStatus::warn, kMachine, "clock", "the CPU governor is 'powersave', which keeps the clocks low",
              "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"});
}

}  // namespace

void check_machine(CheckReport& report) {
  const std::string processor = processor_name();
  const int n_cores = default_thread_count();
  const size_t n_bytes = physical_memory_bytes(), n_free = available_memory_bytes();
  report.machine = {
      {"processor", processor}, {"cores", n_cores}, {"memory_bytes", n_bytes}, {"available_memory_bytes", n_free}};
  report.add(
      {CheckStatus::ok, kMachine, "processor", fmt::format("{}, {} usable", processor, pluralize(n_cores, "core"))});
  const bool is_low = n_free < n_bytes / 10;
  report.add({is_low ? CheckStatus::warn : CheckStatus::ok, kMachine, "memory",
              fmt::format("{}, {} of it free", human_bytes(n_bytes), human_bytes(n_free)),
              is_low ? "ps aux --sort=-rss | head   # shows which processes use it" : ""});
  check_governor(report);
}

void check_models(CheckReport& report, const HubSettings& settings, bool is_named) {
  size_t n_installed = 0;
  uint64_t n_bytes = 0;
  for (const ModelEntry& entry : list_models(settings, host_memory())) {
    if (entry.path.empty()) continue;
    ++n_installed;
    n_bytes += entry.n_bytes;
  }
  const uint64_t n_free = free_disk_bytes(settings.cache);
  const std::string cache_folder = settings.cache.string();
  if (n_installed > 0) {
    report.add({CheckStatus::ok, "models", "installed",
                fmt::format("{}, {}; in {}", pluralize(n_installed, "model"), human_bytes(n_bytes), cache_folder)});
  } else {
    report.add({is_named ? CheckStatus::skip : CheckStatus::warn, "models", "installed",
                fmt::format("no models installed; they are stored in {}", cache_folder),
                is_named ? "" : fmt::format("zinc pull {}", kDefaultModelId)});
  }
  constexpr uint64_t kLittleSpace = 2'000'000'000;
  if (n_free == 0) return;
  report.add({n_free < kLittleSpace ? CheckStatus::warn : CheckStatus::ok, "models", "disk",
              fmt::format("{} free", human_bytes(n_free)),
              n_free < kLittleSpace ? "zinc list --installed, then zinc rm NAME" : ""});
}

}  // namespace zinc
