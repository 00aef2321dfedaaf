// Spin-loop hint (PAUSE, YIELD): the sibling hyperthread runs faster and the loop exits sooner.
#pragma once

namespace zinc {

inline void relax_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace zinc
