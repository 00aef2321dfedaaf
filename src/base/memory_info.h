// How much memory this process may have, for refusing what cannot fit before it is tried: the machine's, or what the
// limits of its control groups (base/cgroup_memory.h) leave of it, whichever is less.
#pragma once

#include <cstddef>

namespace zinc {

size_t physical_memory_bytes();
size_t resident_memory_bytes();   // of this process, now; mapped files that are in memory count
size_t available_memory_bytes();  // what new allocations may take without swapping, page cache counted as free

}  // namespace zinc
