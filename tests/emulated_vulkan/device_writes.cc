#include "tests/emulated_vulkan/device_writes.h"

namespace zinc::emulated_vulkan {

void DeviceWrites::write(uint64_t address, uint32_t n_bytes, uint32_t workgroup, bool is_same_value) {
  for (uint64_t word = address / kWordBytes; word <= (address + n_bytes - 1) / kWordBytes; ++word) {
    const uint64_t line = word * kWordBytes / kLineBytes;
    uint32_t& writer = lines_[line][word % (kLineBytes / kWordBytes)];
    filter_.set(filter_bit(line));
    if (!is_same_value) {
      writer = workgroup;
    } else if (writer != 0 && writer != workgroup) {
      writer = kSeveralWorkgroups;
    }
  }
}

bool DeviceWrites::is_stale(uint64_t address, uint32_t n_bytes, uint32_t workgroup) const {
  for (uint64_t word = address / kWordBytes; word <= (address + n_bytes - 1) / kWordBytes; ++word) {
    const uint64_t line = word * kWordBytes / kLineBytes;
    if (!filter_.test(filter_bit(line))) {
      word = (line + 1) * kLineBytes / kWordBytes - 1;  // on to the next line
      continue;
    }
    const auto written = lines_.find(line);
    if (written == lines_.end()) continue;
    const uint32_t writer = written->second[word % (kLineBytes / kWordBytes)];
    if (writer != 0 && writer != workgroup && writer != kSeveralWorkgroups) return true;
  }
  return false;
}

void DeviceWrites::pass_barrier() {
  lines_.clear();
  filter_.reset();
}

}  // namespace zinc::emulated_vulkan
