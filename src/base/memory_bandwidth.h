// Measures the DRAM read bandwidth of all threads of a pool together, the roofline of memory-bound kernels. Takes about
// 0.1 s and 256 MiB, freed before it returns.
#pragma once

#include "base/thread_pool.h"

namespace zinc {

double measure_read_bytes_per_s(ThreadPool& threads);  // 0 if the allocation fails

}  // namespace zinc
