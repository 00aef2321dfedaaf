// Q5_K: Q4_K with a fifth bit per quant.
#include "backend/cpu/format/k_groups.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Source {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t high[32];  // bit g of byte l: the fifth bit of quant l of group g
  uint8_t q[128];
};
static_assert(sizeof(Source) == 176);

// The head of Q4_K, then the nibbles; among those of the first pair, each before its like, 8 vectors of fifth bits: bit
// g of vector v's bytes belongs to group g.
struct Block {
  static constexpr ColumnKind kColumnKind = ColumnKind::q8_blocks_of_256;
  static constexpr uint16_t kBlockElems = 256, kPanelBlockBytes = 320 + 512 + kNibbleBytes;

  static constexpr size_t high_at(size_t v) { return 320 + v * 128; }
  static constexpr size_t nibbles_at(size_t pair, size_t v) {
    return pair == 0 ? high_at(v) + 64 : 320 + 512 + pair * 512 + v * 64;
  }

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      Source source;
      std::memcpy(&source, row_blocks[r], sizeof source);
      pack_scale_mins(source.d, source.dmin, source.scales, r, out);
      for (size_t w = 0; w < 32; ++w) put_word(out + nibbles_at(w / 8, w % 8), r, word_at(source.q, w));
      for (size_t v = 0; v < 8; ++v) put_word(out + high_at(v), r, word_at(source.high, v));
    }
  }

  template <int pair, int N>
  static void multiply_pair(const uint8_t* w, size_t block, const Column* c, F (&sums)[N]) {
    const B fifth = b_set(0x10);
    I even[N], odd[N];
    for (int n = 0; n < N; ++n) even[n] = odd[n] = i_zero();
    for (size_t v = 0; v < 8; ++v) {
      const B high = b_load(w + high_at(v)), both = b_load(w + nibbles_at(pair, v));
      const B even_bit = b_and(shift_to_fifth<2 * pair>(high), fifth);
      const B odd_bit = b_and(shift_to_fifth<2 * pair + 1>(high), fifth);
      const B q0 = b_or(b_low_nibbles(both), even_bit);
      const B q1 = b_or(b_high_nibbles(both), odd_bit);
      dot_pair<N>(even, odd, q0, q1, c, block * 256 + pair * 64 + v * 4);
    }
    add_scaled<N>(sums, even, i_to_f(i_load_u8(w + 64 + pair * 32)));
    add_scaled<N>(sums, odd, i_to_f(i_load_u8(w + 64 + pair * 32 + 16)));
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const Column* c, F (&acc)[N]) {
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    multiply_pair<0, N>(w, block, c, sums);
    multiply_pair<1, N>(w, block, c, sums);
    multiply_pair<2, N>(w, block, c, sums);
    multiply_pair<3, N>(w, block, c, sums);
    finish_scale_mins<N>(w, block, c, sums, acc);
  }

  template <int bit>
  static B shift_to_fifth(B bits) {
    if constexpr (bit < 4) {
      return b_shift_left<4 - bit>(bits);
    } else {
      return b_shift_right<bit - 4>(bits);
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_q5_k;
const PanelFormat k_panel_q5_k = panel_format<Block>("q5_k");

}  // namespace zinc::cpu::ZINC_ISA
