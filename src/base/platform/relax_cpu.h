// Tells the core that it is in a waiting loop: a sibling thread runs faster and the loop leaves sooner.
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
