// NVFP4: blocks of 64 in 4 groups of 16: x = scale[g] * E2M1[q], scales unsigned E4M3.
#include "backend/cpu/format/tables.h"
#include "backend/cpu/panel_kernel.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Nvfp4Block {
  uint8_t scale[4];
  uint8_t q[32];  // 8 bytes per group: low nibbles hold elements 0-7, high nibbles 8-15
};
static_assert(sizeof(Nvfp4Block) == 36);

// scales e4m3[4][16], then 8 vectors of nibbles as on disk. 576 bytes, the same as on disk.
struct PanelBlock {
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_32;
  static constexpr size_t kQuantsOffset = 64;
  static constexpr uint16_t kBlockElems = 64, kPanelBlockBytes = 576;
  static constexpr uint8_t kNan = 0x7F;              // read as 0
  static constexpr float kScaleFactor = 0x1p8f / 2;  // f_load_e4m3 divides by 2^8; table values are doubled

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      Nvfp4Block file_block;
      std::memcpy(&file_block, row_blocks[r], sizeof file_block);
      for (size_t g = 0; g < 4; ++g)
        out[g * kPanelRows + r] = file_block.scale[g] == kNan ? 0 : file_block.scale[g] & 0x7F;
      for (size_t v = 0; v < 8; ++v) put_word(out + kQuantsOffset + v * 64, r, word_at(file_block.q, v));
    }
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    const B table = b_table(kE2m1Biased);
    for (size_t g = 0; g < 4; ++g) {
      const size_t group16 = block * 4 + g;
      I dots[N];
      for (int n = 0; n < N; ++n) dots[n] = biased_start(x[n].sum16[group16]);
      for (size_t v = 0; v < 2; ++v) {
        const B both = b_load(w + kQuantsOffset + (g * 2 + v) * 64);
        const B low = b_lookup(table, b_low_nibbles(both)), high = b_lookup(table, b_high_nibbles(both));
        for (int n = 0; n < N; ++n) {
          const int8_t* q = x[n].q + group16 * 16 + v * 4;
          dots[n] = dot4_biased(dot4_biased(dots[n], low, q), high, q + 8);
        }
      }
      const F scale = f_load_e4m3(w + g * kPanelRows);
      for (int n = 0; n < N; ++n) {
        const float x_scale = x[n].scale[group16 / 2] * kScaleFactor;
        acc[n] = f_fma(f_mul(scale, f_set(x_scale)), i_to_f(dots[n]), acc[n]);
      }
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_nvfp4;
const PanelFormat k_panel_nvfp4 = panel_format<PanelBlock>("nvfp4");

}  // namespace zinc::cpu::ZINC_ISA
