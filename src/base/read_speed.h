// How fast all threads of a pool together read memory that is in no cache: the line a memory-bound program is measured
// against. Takes about a tenth of a second and 256 MiB, given back before it returns.
#pragma once

#include "base/thread_pool.h"

namespace zinc {

double measure_read_bytes_per_s(ThreadPool& threads);  // 0 if the system refuses the memory

}  // namespace zinc
