#include "hub/fit.h"

#include "base/memory_info.h"

namespace zinc {

MemoryNeed estimated_need(uint64_t file_bytes) {
  constexpr uint64_t kSpareBytes = uint64_t{256} << 20;
  const uint64_t n_bytes = file_bytes == 0 ? 0 : file_bytes + file_bytes / 10 + kSpareBytes;
  return {.bytes = n_bytes, .limit_bytes = n_bytes};
}

MemoryCapacity host_memory() { return {physical_memory_bytes(), available_memory_bytes()}; }

Fit judge_fit(const MemoryNeed& need, const MemoryCapacity& memory) {
  if (need.bytes == 0) return Fit::unknown;
  if (need.bytes > memory.n_bytes) return Fit::too_large;
  return need.limit_bytes > memory.n_available ? Fit::tight : Fit::fits;
}

std::string_view fit_name(Fit fit) {
  switch (fit) {
    case Fit::fits:
      return "fits";
    case Fit::tight:
      return "tight";
    case Fit::too_large:
      return "too large";
    case Fit::unknown:
      break;
  }
  return "unknown";
}

}  // namespace zinc
