// Q4_K: blocks of 256 in 8 groups of 32: x = d * scale[g] * q - dmin * min[g], q of 4 bits.
#include "backend/cpu/format/k_groups.h"
#include "tensor/k_scales.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Source {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t q[128];
};
static_assert(sizeof(Source) == 144);

// d f16[16], dmin f16[16], scales u8[8][16], mins u8[4][16][2], then the nibble pairs of k_groups.h.
struct Block {
  static constexpr ColumnKind kColumnKind = ColumnKind::q8_blocks_of_256;
  static constexpr uint16_t kBlockElems = 256, kPanelBlockBytes = 320 + kNibbleBytes;

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      Source source;
      std::memcpy(&source, row_blocks[r], sizeof source);
      pack_scale_mins(source.d, source.dmin, source.scales, r, out);
      for (size_t w = 0; w < 32; ++w) put_word(out + 320 + w * 64, r, word_at(source.q, w));  // paired as on disk
    }
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const Column* c, F (&acc)[N]) {
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    for (int pair = 0; pair < 4; ++pair) {
      I even[N], odd[N];
      for (int n = 0; n < N; ++n) even[n] = odd[n] = i_zero();
      for (int v = 0; v < 8; ++v) {
        const B both = b_load(w + 320 + pair * 512 + v * 64);
        dot_pair<N>(even, odd, b_low_nibbles(both), b_high_nibbles(both), c,
                    block * 256 + static_cast<size_t>(pair * 64 + v * 4));
      }
      add_scaled<N>(sums, even, i_to_f(i_load_u8(w + 64 + pair * 32)));
      add_scaled<N>(sums, odd, i_to_f(i_load_u8(w + 64 + pair * 32 + 16)));
    }
    finish_scale_mins<N>(w, block, c, sums, acc);
  }
};

}  // namespace

extern const PanelFormat k_panel_q4_k;
const PanelFormat k_panel_q4_k = panel_format<Block>("q4_k");

}  // namespace zinc::cpu::ZINC_ISA
