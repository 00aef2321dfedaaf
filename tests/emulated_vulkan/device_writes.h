// Writes to device memory since the last barrier between dispatches. A GPU's caches are not coherent: a load that is
// not declared `coherent` may return stale data where another workgroup has written since that barrier.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <unordered_map>

namespace zinc::emulated_vulkan {

class DeviceWrites {
 public:
  uint32_t add_workgroup() { return ++n_workgroups_; }  // returns its id
  // is_same_value: the write does not change the memory. Several workgroups may write the same value and read it.
  void write(uint64_t address, uint32_t n_bytes, uint32_t workgroup, bool is_same_value);
  bool is_stale(uint64_t address, uint32_t n_bytes, uint32_t workgroup) const;  // for a load of this workgroup
  void pass_barrier();

 private:
  static constexpr uint64_t kLineBytes = 64, kWordBytes = 4;
  static constexpr uint32_t kSeveralWorkgroups = ~0u;  // wrote the same value
  // By word: the workgroup that wrote it last; 0: none.
  using Line = std::array<uint32_t, kLineBytes / kWordBytes>;
  static size_t filter_bit(uint64_t line) { return line % kFilterBits; }

  static constexpr size_t kFilterBits = 1 << 18;
  std::unordered_map<uint64_t, Line> lines_;
  std::bitset<kFilterBits> filter_;  // no lookup for lines that were not written, which are most
  uint32_t n_workgroups_ = 0;
};

}  // namespace zinc::emulated_vulkan
