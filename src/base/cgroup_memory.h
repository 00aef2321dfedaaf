// Memory limits of this process's control groups (container, systemd service): the tightest limit between its own
// group and the root, cgroup v2 or v1. Read again at each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace zinc {

struct CgroupMemory {
  size_t limit = SIZE_MAX;      // SIZE_MAX: no limit
  size_t available = SIZE_MAX;  // limit minus usage; the group's page cache counts as free
};

// `groups` is /proc/self/cgroup, `root` the cgroup mount point. Files that cannot be read impose no limit.
CgroupMemory read_cgroup_memory(const std::filesystem::path& groups, const std::filesystem::path& root);

}  // namespace zinc
