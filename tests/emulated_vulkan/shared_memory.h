// The memory of a workgroup, and who was where in it since the last barrier: two threads at one place, one of which
// writes, must have a barrier between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace zinc::emulated_vulkan {

inline constexpr uint32_t kLanes = 32;                // of a subgroup
inline constexpr uint32_t kNobodysWord = 0xEEEEEEEE;  // what was not written has no meaning

class SharedMemory {
 public:
  void reset(uint32_t n_bytes);  // to bytes without meaning
  uint64_t begin() const { return reinterpret_cast<uint64_t>(bytes_.data()); }
  // Who is there: a thread, or with kAllLanes the subgroup as one. `turn`: how many barriers the subgroup has seen;
  // `exchange`: likewise with shuffles, behind which all its lanes have what they read before.
  struct Visit {
    uint32_t who, turn, exchange;
  };
  static constexpr uint32_t kNobody = ~0u, kAllLanes = 0x8000, kSeveralLanes = 0x4000, kAnybody = 0xFFFF;
  static std::string name_of(uint32_t who);
  // The answer: who else was there since the last barrier and must not have been.
  uint32_t read(uint64_t at, uint32_t n_bytes, const Visit& visit);
  // is_same: what is there already is written; whoever else does so does no harm.
  uint32_t write(uint64_t at, uint32_t n_bytes, const Visit& visit, bool is_same);
  bool has(uint64_t at, uint32_t n_bytes) const { return at >= begin() && at - begin() + n_bytes <= n_bytes_; }
  void pass_barrier() { ++epoch_; }

 private:
  struct Trace {
    uint32_t epoch = 0, turn = 0, who = 0;
  };
  struct Place {  // two bytes
    Trace written, read;
  };
  std::span<Place> places(uint64_t at, uint32_t n_bytes);
  static uint32_t subgroup_of(uint32_t who) {
    constexpr uint32_t kSubgroup = kSeveralLanes - 1;
    return (who & (kAllLanes | kSeveralLanes)) != 0 ? who & kSubgroup : who / kLanes;
  }
  // Somebody else, with no barrier in between.
  bool meets(const Trace& other, uint32_t who, uint32_t turn) const {
    if (other.epoch != epoch_ || other.who == who) return false;
    return subgroup_of(other.who) != subgroup_of(who) || other.turn == turn;
  }

  std::vector<std::byte> bytes_;
  std::vector<Place> places_;
  uint32_t n_bytes_ = 0, epoch_ = 0;
};

}  // namespace zinc::emulated_vulkan
