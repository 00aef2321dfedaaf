// What the control groups of this process (a container's, a service's) leave it of the machine's memory: the tightest
// limit on the way from its own group to the root, of version 2 or 1. Read anew at each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace zinc {

struct GroupMemory {
  size_t limit = SIZE_MAX;      // SIZE_MAX: there is none
  size_t available = SIZE_MAX;  // below the limit now, page cache of the group counted as free
};

// `groups` is /proc/self/cgroup, `root` the folder where control groups are mounted. What cannot be read limits
// nothing.
GroupMemory read_group_memory(const std::filesystem::path& groups, const std::filesystem::path& root);

}  // namespace zinc
