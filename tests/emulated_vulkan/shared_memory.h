// Shared memory of a workgroup with a race detector: two threads that access the same address, at least one writing,
// must have a barrier between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace zinc::emulated_vulkan {

inline constexpr uint32_t kLanes = 32;               // per subgroup
inline constexpr uint32_t kPoisonWord = 0xEEEEEEEE;  // value of uninitialized or racing memory

class SharedMemory {
 public:
  void reset(uint32_t n_bytes);  // fills with the poison value
  uint64_t begin() const { return reinterpret_cast<uint64_t>(bytes_.data()); }
  // `thread`: a thread index, or with kWholeSubgroup a subgroup accessing as one. `barrier_epoch`: barriers passed by
  // the subgroup; `shuffle_epoch`: the same plus shuffles, after which all lanes have completed their earlier reads.
  struct Access {
    uint32_t thread, barrier_epoch, shuffle_epoch;
  };
  static constexpr uint32_t kNoThread = ~0u, kWholeSubgroup = 0x8000, kSeveralLanes = 0x4000,
                            kSeveralSubgroups = 0xFFFF;
  static std::string accessor_name(uint32_t thread);
  // Both return a racing accessor since the last barrier, or kNoThread.
  uint32_t read(uint64_t address, uint32_t n_bytes, const Access& access);
  // is_same_value: the write does not change the memory; concurrent writes of the same value are harmless.
  uint32_t write(uint64_t address, uint32_t n_bytes, const Access& access, bool is_same_value);
  bool has(uint64_t address, uint32_t n_bytes) const {
    return address >= begin() && address - begin() + n_bytes <= n_bytes_;
  }
  void pass_barrier() { ++epoch_; }

 private:
  struct LastAccess {
    uint32_t epoch = 0, barrier_epoch = 0, thread = 0;
  };
  struct Granule {  // two bytes
    LastAccess written, read;
  };
  std::span<Granule> granules(uint64_t address, uint32_t n_bytes);
  static uint32_t subgroup_of(uint32_t thread) {
    constexpr uint32_t kSubgroup = kSeveralLanes - 1;
    return (thread & (kWholeSubgroup | kSeveralLanes)) != 0 ? thread & kSubgroup : thread / kLanes;
  }
  // A different accessor with no barrier in between.
  bool races_with(const LastAccess& other, uint32_t thread, uint32_t barrier_epoch) const {
    if (other.epoch != epoch_ || other.thread == thread) return false;
    return subgroup_of(other.thread) != subgroup_of(thread) || other.barrier_epoch == barrier_epoch;
  }

  std::vector<std::byte> bytes_;
  std::vector<Granule> granules_;
  uint32_t n_bytes_ = 0, epoch_ = 0;
};

}  // namespace zinc::emulated_vulkan
