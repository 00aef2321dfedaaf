#include "tests/emulated_vulkan/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/emulated_vulkan/program.h"

namespace zinc::emulated_vulkan {

void SharedMemory::reset(uint32_t n_bytes) {
  n_bytes_ = n_bytes;
  bytes_.assign(std::max<size_t>(n_bytes, 16), static_cast<std::byte>(kPoisonWord & 0xFF));
  if (granules_.size() < n_bytes / 2 + 1) granules_.resize(n_bytes / 2 + 1);
  ++epoch_;
}

std::span<SharedMemory::Granule> SharedMemory::granules(uint64_t address, uint32_t n_bytes) {
  if (!has(address, n_bytes)) fault("an address outside of shared memory");
  return std::span(granules_).subspan((address - begin()) / 2, (n_bytes + 1) / 2);
}

std::string SharedMemory::accessor_name(uint32_t thread) {
  if (thread == kSeveralSubgroups) return "several subgroups";
  if ((thread & kWholeSubgroup) != 0) return fmt::format("a matrix of subgroup {}", subgroup_of(thread));
  return fmt::format("{} {}", (thread & kSeveralLanes) != 0 ? "threads of subgroup" : "thread",
                     thread & (kSeveralLanes - 1));
}

uint32_t SharedMemory::read(uint64_t address, uint32_t n_bytes, const Access& access) {
  const auto [thread, barrier_epoch, shuffle_epoch] = access;
  for (Granule& granule : granules(address, n_bytes)) {
    if (races_with(granule.written, thread, barrier_epoch)) return granule.written.thread;
    LastAccess now{epoch_, shuffle_epoch, thread};
    if (races_with(granule.read, thread, shuffle_epoch)) {
      const bool is_same_subgroup = subgroup_of(granule.read.thread) == subgroup_of(thread);
      now.thread = is_same_subgroup ? kSeveralLanes | subgroup_of(thread) : kSeveralSubgroups;
    }
    granule.read = now;
  }
  return kNoThread;
}

uint32_t SharedMemory::write(uint64_t address, uint32_t n_bytes, const Access& access, bool is_same_value) {
  for (Granule& granule : granules(address, n_bytes)) {
    const bool is_race = races_with(granule.written, access.thread, access.barrier_epoch);
    if (is_race && !is_same_value) return granule.written.thread;
    if (races_with(granule.read, access.thread, access.shuffle_epoch) && !is_same_value) return granule.read.thread;
    if (!is_race) granule.written = {epoch_, access.barrier_epoch, access.thread};
  }
  return kNoThread;
}

}  // namespace zinc::emulated_vulkan
