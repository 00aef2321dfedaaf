#include <sched.h>

#include <algorithm>
#include <thread>

#include "base/thread_pool.h"

namespace zinc {

int default_thread_count() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) return std::max(CPU_COUNT(&mask), 1);
  return std::max(static_cast<int>(std::thread::hardware_concurrency()),
                  1);  // the mask does not fit: more than 1,024 cores
}

}  // namespace zinc
