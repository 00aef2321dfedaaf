#include "backend/cpu/kernels.h"

namespace zinc::cpu {

namespace avx512 {
extern const Kernels k_kernels;
}
namespace avx2 {
extern const Kernels k_kernels;
}

namespace {

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

struct InstructionSet {
  const Kernels& kernels;
  bool (*runs_here)();
};
constexpr InstructionSet kBestFirst[] = {{avx512::k_kernels, has_avx512}, {avx2::k_kernels, has_avx2}};

}  // namespace

std::vector<const Kernels*> usable_kernels() {
  __builtin_cpu_init();
  std::vector<const Kernels*> usable;
  for (const InstructionSet& set : kBestFirst) {
    if (set.runs_here()) usable.push_back(&set.kernels);
  }
  return usable;
}

}  // namespace zinc::cpu
