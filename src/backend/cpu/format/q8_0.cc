// Q8_0: blocks of 32: x = d * q. Quants are biased by 128 to be unsigned.
#include <cstring>

#include "backend/cpu/format/tables.h"
#include "backend/cpu/panel_kernel.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

// d f16[16], then 8 vectors of quants 4v..4v+3 of each row. 544 bytes, the same as on disk.
struct PanelBlock {
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_32;
  static constexpr uint16_t kBlockElems = 32, kPanelBlockBytes = 544;

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      uint8_t file_block[34];
      std::memcpy(file_block, row_blocks[r], sizeof file_block);
      std::memcpy(out + r * 2, file_block, 2);
      for (size_t v = 0; v < 8; ++v)
        put_word(out + 32 + v * 64, r, word_at(file_block + 2, v) ^ kByteBias * 0x01010101u);
    }
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    I dots[N];
    const int8_t* quants[N];
    for (int n = 0; n < N; ++n) {
      dots[n] = biased_start(x[n].sum32[block]);
      quants[n] = x[n].q + block * 32;
    }
    for (int v = 0; v < 8; ++v) {
      const B q = b_load(w + 32 + v * 64);
      for (int n = 0; n < N; ++n) dots[n] = dot4_biased(dots[n], q, quants[n] + v * 4);
    }
    const F d = f_load_half(reinterpret_cast<const uint16_t*>(w));
    for (int n = 0; n < N; ++n) {
      acc[n] = f_fma(f_mul(d, f_set(x[n].scale[block])), i_to_f(dots[n]), acc[n]);
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_q8_0;
const PanelFormat k_panel_q8_0 = panel_format<PanelBlock>("q8_0");

}  // namespace zinc::cpu::ZINC_ISA
