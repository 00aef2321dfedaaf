// IQ4_XS: blocks of 256 in 8 groups of 32: x = d * (scale[g] - 32) * table[q], q of 4 bits.
#include "backend/cpu/format/k_groups.h"
#include "backend/cpu/format/tables.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Iq4XsBlock {
  uint16_t d;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t q[128];  // 16 bytes a group: quants l and l + 16
};
static_assert(sizeof(Iq4XsBlock) == 136);

// d f16[16], scales s8[8][16], nibbles.
struct PanelBlock {
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_256;
  static constexpr int kScaleBias = 32, kScalesOffset = 32, kQuantsOffset = 160;
  static constexpr uint16_t kBlockElems = 256, kPanelBlockBytes = kQuantsOffset + kNibbleBytes;

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      Iq4XsBlock file_block;
      std::memcpy(&file_block, row_blocks[r], sizeof file_block);
      std::memcpy(out + r * 2, &file_block.d, 2);
      for (size_t g = 0; g < 8; ++g) {
        const int low = file_block.scales_low[g / 2] >> (g % 2 * 4) & 15, high = file_block.scales_high >> (g * 2) & 3;
        out[kScalesOffset + g * 16 + r] = static_cast<uint8_t>((low | high << 4) - kScaleBias);
      }
      for (size_t pair = 0; pair < 4; ++pair) {
        for (size_t v = 0; v < 4; ++v) {
          const uint32_t even = word_at(file_block.q, pair * 8 + v), odd = word_at(file_block.q, pair * 8 + 4 + v);
          put_word(out + kQuantsOffset + pair * kPairBytes + v * kVectorBytes, r, join_low(even, odd));
          put_word(out + kQuantsOffset + pair * kPairBytes + (v + 4) * kVectorBytes, r, join_high(even, odd));
        }
      }
    }
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    const B table = b_table(kIq4Biased);
    for (int pair = 0; pair < 4; ++pair) {
      I even[N], odd[N];
      for (int n = 0; n < N; ++n) {
        const int16_t* sums32 = x[n].sum32 + block * 8 + pair * 2;
        even[n] = biased_start(sums32[0]);
        odd[n] = biased_start(sums32[1]);
      }
      for (int v = 0; v < 8; ++v) {
        const B both = b_load(w + kQuantsOffset + pair * kPairBytes + v * kVectorBytes);
        const B low = b_lookup(table, b_low_nibbles(both));
        const B high = b_lookup(table, b_high_nibbles(both));
        dot_pair<N, dot4_biased>(even, odd, low, high, x, block * 256 + static_cast<size_t>(pair * 64 + v * 4));
      }
      const int8_t* scales = reinterpret_cast<const int8_t*>(w) + kScalesOffset + pair * 32;
      add_scaled<N>(sums, even, i_to_f(i_load_s8(scales)));
      add_scaled<N>(sums, odd, i_to_f(i_load_s8(scales + 16)));
    }
    const F d = f_load_half(reinterpret_cast<const uint16_t*>(w));
    for (int n = 0; n < N; ++n) acc[n] = f_fma(f_mul(d, f_set(x[n].scale[block])), sums[n], acc[n]);
  }
};

}  // namespace

extern const PanelFormat k_panel_iq4_xs;
const PanelFormat k_panel_iq4_xs = panel_format<PanelBlock>("iq4_xs");

}  // namespace zinc::cpu::ZINC_ISA
