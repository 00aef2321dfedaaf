// Q4_K: blocks of 256 in 8 groups of 32: x = d * scale[g] * q - dmin * min[g], q of 4 bits.
#include "backend/cpu/format/k_groups.h"
#include "tensor/k_scales.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Q4KBlock {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t q[128];
};
static_assert(sizeof(Q4KBlock) == 144);

// d f16[16], dmin f16[16], scales u8[8][16], mins u8[4][16][2], then the nibble pairs of k_groups.h.
struct PanelBlock {
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_256;
  static constexpr uint16_t kBlockElems = 256, kPanelBlockBytes = kScaleMinBytes + kNibbleBytes;

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      Q4KBlock file_block;
      std::memcpy(&file_block, row_blocks[r], sizeof file_block);
      pack_scale_mins(file_block.d, file_block.dmin, file_block.scales, r, out);
      for (size_t w = 0; w < 32; ++w)
        put_word(out + kScaleMinBytes + w * kVectorBytes, r, word_at(file_block.q, w));  // paired as on disk
    }
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    for (int pair = 0; pair < 4; ++pair) {
      I even[N], odd[N];
      for (int n = 0; n < N; ++n) even[n] = odd[n] = i_zero();
      for (int v = 0; v < 8; ++v) {
        const B both = b_load(w + kScaleMinBytes + pair * kPairBytes + v * kVectorBytes);
        dot_pair<N>(even, odd, b_low_nibbles(both), b_high_nibbles(both), x,
                    block * 256 + static_cast<size_t>(pair * 64 + v * 4));
      }
      add_scaled<N>(sums, even, i_to_f(i_load_u8(w + kScalesOffset + pair * 32)));
      add_scaled<N>(sums, odd, i_to_f(i_load_u8(w + kScalesOffset + pair * 32 + 16)));
    }
    finish_scale_mins<N>(w, block, x, sums, acc);
  }
};

}  // namespace

extern const PanelFormat k_panel_q4_k;
const PanelFormat k_panel_q4_k = panel_format<PanelBlock>("q4_k");

}  // namespace zinc::cpu::ZINC_ISA
