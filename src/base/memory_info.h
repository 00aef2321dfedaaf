// Memory available to this process: the minimum of the machine's memory and its cgroup limits (base/cgroup_memory.h).
// Used to reject models and caches that cannot fit.
#pragma once

#include <cstddef>

namespace zinc {

size_t physical_memory_bytes();
size_t resident_memory_bytes();   // RSS of this process; resident pages of mapped files count
size_t available_memory_bytes();  // for new allocations without swapping; page cache counts as free

}  // namespace zinc
