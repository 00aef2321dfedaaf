// Float weights: one vector of 16 rows per element along K, multiplied in f32.
#pragma once

#include <cstring>

#include "backend/cpu/panel_kernel.h"

namespace zinc::cpu::ZINC_ISA {

// Kind: Stored (the type on disk), load(const Stored*) -> F.
template <class Kind>
struct FloatBlock {
  using Stored = typename Kind::Stored;
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::f32;
  static constexpr uint16_t kBlockElems = 1, kPanelBlockBytes = kPanelRows * sizeof(Stored);

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) std::memcpy(out + r * sizeof(Stored), row_blocks[r], sizeof(Stored));
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t k, const TokenActivation* x, F (&acc)[N]) {
    const F row = Kind::load(reinterpret_cast<const Stored*>(w));
    for (int n = 0; n < N; ++n) acc[n] = f_fma(row, f_set(x[n].f32[k]), acc[n]);
  }
};

}  // namespace zinc::cpu::ZINC_ISA
