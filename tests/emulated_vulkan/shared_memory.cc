#include "tests/emulated_vulkan/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/emulated_vulkan/program.h"

namespace zinc::emulated_vulkan {

void SharedMemory::reset(uint32_t n_bytes) {
  n_bytes_ = n_bytes;
  bytes_.assign(std::max<size_t>(n_bytes, 16), static_cast<std::byte>(kNobodysWord & 0xFF));
  if (places_.size() < n_bytes / 2 + 1) places_.resize(n_bytes / 2 + 1);
  ++epoch_;
}

std::span<SharedMemory::Place> SharedMemory::places(uint64_t at, uint32_t n_bytes) {
  if (!has(at, n_bytes)) fault("an address outside of the workgroup's memory");
  return std::span(places_).subspan((at - begin()) / 2, (n_bytes + 1) / 2);
}

std::string SharedMemory::name_of(uint32_t who) {
  if (who == kAnybody) return "several subgroups";
  if ((who & kAllLanes) != 0) return fmt::format("a matrix of subgroup {}", subgroup_of(who));
  return fmt::format("{} {}", (who & kSeveralLanes) != 0 ? "threads of subgroup" : "thread", who & (kSeveralLanes - 1));
}

uint32_t SharedMemory::read(uint64_t at, uint32_t n_bytes, const Visit& visit) {
  const auto [who, turn, exchange] = visit;
  for (Place& place : places(at, n_bytes)) {
    if (meets(place.written, who, turn)) return place.written.who;
    Trace now{epoch_, exchange, who};
    if (meets(place.read, who, exchange)) {
      const bool is_one = subgroup_of(place.read.who) == subgroup_of(who);
      now.who = is_one ? kSeveralLanes | subgroup_of(who) : kAnybody;
    }
    place.read = now;
  }
  return kNobody;
}

uint32_t SharedMemory::write(uint64_t at, uint32_t n_bytes, const Visit& visit, bool is_same) {
  for (Place& place : places(at, n_bytes)) {
    const bool is_second = meets(place.written, visit.who, visit.turn);
    if (is_second && !is_same) return place.written.who;
    if (meets(place.read, visit.who, visit.exchange) && !is_same) return place.read.who;
    if (!is_second) place.written = {epoch_, visit.turn, visit.who};
  }
  return kNobody;
}

}  // namespace zinc::emulated_vulkan
