#include <cpuid.h>

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
// clang 14 does not accept "f16c" in __builtin_cpu_supports.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }

struct InstructionSet {
  const Kernels& kernels;
  bool (*is_supported)();
};
constexpr InstructionSet kBestFirst[] = {{avx512::k_kernels, has_avx512}, {avx2::k_kernels, has_avx2}};

}  // namespace

std::string_view required_isa() { return "AVX2"; }

std::vector<const Kernels*> supported_kernels() {
  __builtin_cpu_init();
  std::vector<const Kernels*> supported;
  for (const InstructionSet& set : kBestFirst) {
    if (set.is_supported()) supported.push_back(&set.kernels);
  }
  return supported;
}

}  // namespace zinc::cpu
