#include "backend/cpu/kernels.h"

namespace zinc::cpu {

namespace avx512 {
extern const Kernels k_kernels;
}

const Kernels* const kInstructionSets[] = {&avx512::k_kernels, nullptr};

const Kernels* choose_kernels() {
  __builtin_cpu_init();
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vnni");
  return has_avx512 ? kInstructionSets[0] : nullptr;
}

}  // namespace zinc::cpu
