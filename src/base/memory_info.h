// How much memory this machine has, for refusing what cannot fit before it is tried.
#pragma once

#include <cstddef>

namespace zinc {

size_t physical_memory_bytes();
size_t resident_memory_bytes();   // of this process, now; mapped files that are in memory count
size_t available_memory_bytes();  // what new allocations may take without swapping, page cache counted as free

}  // namespace zinc
