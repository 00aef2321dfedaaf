// IQ4_XS: blocks of 256 in 8 groups of 32: x = d * (scale[g] - 32) * table[q], q of 4 bits.
#include "backend/cpu/format/k_groups.h"
#include "backend/cpu/format/tables.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Source {
  uint16_t d;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t q[128];  // 16 bytes a group: quants l and l + 16
};
static_assert(sizeof(Source) == 136);

// d f16[16], scales s8[8][16], nibbles.
struct Block {
  static constexpr ColumnKind kColumnKind = ColumnKind::q8_blocks_of_256;
  static constexpr uint16_t kBlockElems = 256, kPanelBlockBytes = 160 + kNibbleBytes;

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      Source source;
      std::memcpy(&source, row_blocks[r], sizeof source);
      std::memcpy(out + r * 2, &source.d, 2);
      for (size_t g = 0; g < 8; ++g) {
        const int low = source.scales_low[g / 2] >> (g % 2 * 4) & 15, high = source.scales_high >> (g * 2) & 3;
        out[32 + g * 16 + r] = static_cast<uint8_t>((low | high << 4) - 32);
      }
      for (size_t pair = 0; pair < 4; ++pair) {
        for (size_t v = 0; v < 4; ++v) {
          const uint32_t even = word_at(source.q, pair * 8 + v), odd = word_at(source.q, pair * 8 + 4 + v);
          put_word(out + 160 + pair * 512 + v * 64, r, join_low(even, odd));
          put_word(out + 160 + pair * 512 + (v + 4) * 64, r, join_high(even, odd));
        }
      }
    }
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const Column* c, F (&acc)[N]) {
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    const B table = b_table(kIq4PlusOffset);
    for (int pair = 0; pair < 4; ++pair) {
      I even[N], odd[N];
      for (int n = 0; n < N; ++n) {
        const int16_t* sums32 = c[n].sum32 + block * 8 + pair * 2;
        even[n] = raised_start(sums32[0]);
        odd[n] = raised_start(sums32[1]);
      }
      for (int v = 0; v < 8; ++v) {
        const B both = b_load(w + 160 + pair * 512 + v * 64);
        const B low = b_lookup(table, b_low_nibbles(both));
        const B high = b_lookup(table, b_high_nibbles(both));
        dot_pair<N, dot4_raised>(even, odd, low, high, c, block * 256 + static_cast<size_t>(pair * 64 + v * 4));
      }
      const int8_t* scales = reinterpret_cast<const int8_t*>(w) + 32 + pair * 32;
      add_scaled<N>(sums, even, i_to_f(i_load_s8(scales)));
      add_scaled<N>(sums, odd, i_to_f(i_load_s8(scales + 16)));
    }
    const F d = f_load_half(reinterpret_cast<const uint16_t*>(w));
    for (int n = 0; n < N; ++n) acc[n] = f_fma(f_mul(d, f_set(c[n].scale[block])), sums[n], acc[n]);
  }
};

}  // namespace

extern const PanelFormat k_panel_iq4_xs;
const PanelFormat k_panel_iq4_xs = panel_format<Block>("iq4_xs");

}  // namespace zinc::cpu::ZINC_ISA
