#include "base/memory_info.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/cgroup_memory.h"

namespace zinc {
namespace {

CgroupMemory own_cgroups() { return read_cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup"); }

size_t available_on_machine() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  size_t kib = 0;
  while (meminfo >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return physical_memory_bytes();
}

}  // namespace

size_t physical_memory_bytes() {
  const size_t n_bytes = static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return std::min(n_bytes, own_cgroups().limit);
}

size_t resident_memory_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t n_virtual = 0, n_resident = 0;
  statm >> n_virtual >> n_resident;
  return n_resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

size_t available_memory_bytes() { return std::min(available_on_machine(), own_cgroups().available); }

}  // namespace zinc
