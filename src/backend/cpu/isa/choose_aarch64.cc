#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "backend/cpu/kernels.h"

namespace zinc::cpu {

namespace neon {
extern const Kernels k_kernels;
}

std::string_view kernels_need() { return "the dot product of ARMv8.2"; }

std::vector<const Kernels*> usable_kernels() {
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) == 0) return {};
  return {&neon::k_kernels};
}

}  // namespace zinc::cpu
