// Parallel loops over rows and sequences; included only by the plan's own files.
#pragma once

#include "backend/cpu/cpu_plan.h"

namespace zinc::cpu {

template <class Fn>
void CpuPlan::for_each_row(size_t n, const Fn& fn) {
  if (n == 1) return fn(size_t{0});  // not worth a barrier
  threads_.parallel_for(n, [&fn](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) fn(i);
  });
}

template <class Fn>
void CpuPlan::for_each_sequence(const Fn& fn) const {
  for (size_t s = 0; s < in_.slots.size(); ++s) {
    const size_t begin = static_cast<size_t>(in_.seq_begin[s]), end = static_cast<size_t>(in_.seq_begin[s + 1]);
    if (begin < end) fn(s, begin, end, in_.positions[begin] == 0);
  }
}

}  // namespace zinc::cpu
