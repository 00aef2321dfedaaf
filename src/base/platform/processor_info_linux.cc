#include "base/processor_info.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace zinc {
namespace {

// Calls `visit` with the value of each line "key : value" of /proc/cpuinfo.
template <class Visit>
void for_each_cpuinfo(const std::string& key, const Visit& visit) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    visit(begin == std::string::npos ? std::string() : line.substr(begin));
  }
}

struct MeanClock {
  double sum = 0;
  int n = 0;
  void add(double mhz) {
    if (mhz <= 0) return;
    sum += mhz;
    ++n;
  }
  double mhz() const { return n > 0 ? sum / n : 0; }
};

MeanClock frequency_files() {
  namespace fs = std::filesystem;
  MeanClock mean;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/sys/devices/system/cpu", ignored)) {
    std::ifstream file(entry.path() / "cpufreq" / "scaling_cur_freq");
    if (double khz = 0; file >> khz) mean.add(khz / 1000);
  }
  return mean;
}

}  // namespace

std::string processor_name() {
  std::string name;
  for_each_cpuinfo("model name", [&](const std::string& value) { name = value; });
  if (!name.empty()) return name;
  std::ifstream model("/proc/device-tree/model");  // ARM boards
  std::getline(model, name, '\0');
  return name;
}

double processor_mhz() {
  if (const MeanClock files = frequency_files(); files.n > 0) return files.mhz();
  MeanClock mean;
  for_each_cpuinfo("cpu MHz", [&](const std::string& value) { mean.add(std::strtod(value.c_str(), nullptr)); });
  return mean.mhz();
}

}  // namespace zinc
