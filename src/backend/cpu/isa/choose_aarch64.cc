#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "backend/cpu/kernels.h"

namespace zinc::cpu {

namespace neon {
extern const Kernels k_kernels;
}

std::string_view required_isa() { return "the dot product instructions of ARMv8.2"; }

std::vector<const Kernels*> supported_kernels() {
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) == 0) return {};
  return {&neon::k_kernels};
}

}  // namespace zinc::cpu
