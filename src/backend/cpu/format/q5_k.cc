// Q5_K: Q4_K with a fifth bit per quant.
#include "backend/cpu/format/k_groups.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Q5KBlock {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t high[32];  // bit g of byte l: the fifth bit of quant l of group g
  uint8_t q[128];
};
static_assert(sizeof(Q5KBlock) == 176);

// The header of Q4_K, then the nibbles. In the first pair each vector of nibbles is preceded by a vector of fifth bits:
// bit g of the bytes of vector v belongs to group g.
struct PanelBlock {
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_256;
  static constexpr size_t kFifthBitBytes = 8 * kVectorBytes;
  static constexpr uint16_t kBlockElems = 256, kPanelBlockBytes = kScaleMinBytes + kFifthBitBytes + kNibbleBytes;

  static constexpr size_t fifth_bits_offset(size_t v) { return kScaleMinBytes + v * 2 * kVectorBytes; }
  static constexpr size_t nibbles_offset(size_t pair, size_t v) {
    return pair == 0 ? fifth_bits_offset(v) + kVectorBytes
                     : kScaleMinBytes + kFifthBitBytes + pair * kPairBytes + v * kVectorBytes;
  }

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      Q5KBlock file_block;
      std::memcpy(&file_block, row_blocks[r], sizeof file_block);
      pack_scale_mins(file_block.d, file_block.dmin, file_block.scales, r, out);
      for (size_t w = 0; w < 32; ++w) put_word(out + nibbles_offset(w / 8, w % 8), r, word_at(file_block.q, w));
      for (size_t v = 0; v < 8; ++v) put_word(out + fifth_bits_offset(v), r, word_at(file_block.high, v));
    }
  }

  template <int pair, int N>
  static void multiply_pair(const uint8_t* w, size_t block, const TokenActivation* x, F (&sums)[N]) {
    const B fifth = b_set(0x10);
    I even[N], odd[N];
    for (int n = 0; n < N; ++n) even[n] = odd[n] = i_zero();
    for (size_t v = 0; v < 8; ++v) {
      const B high = b_load(w + fifth_bits_offset(v)), both = b_load(w + nibbles_offset(pair, v));
      const B even_bit = b_and(shift_to_fifth<2 * pair>(high), fifth);
      const B odd_bit = b_and(shift_to_fifth<2 * pair + 1>(high), fifth);
      const B q0 = b_or(b_low_nibbles(both), even_bit);
      const B q1 = b_or(b_high_nibbles(both), odd_bit);
      dot_pair<N>(even, odd, q0, q1, x, block * 256 + pair * 64 + v * 4);
    }
    add_scaled<N>(sums, even, i_to_f(i_load_u8(w + kScalesOffset + pair * 32)));
    add_scaled<N>(sums, odd, i_to_f(i_load_u8(w + kScalesOffset + pair * 32 + 16)));
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    multiply_pair<0, N>(w, block, x, sums);
    multiply_pair<1, N>(w, block, x, sums);
    multiply_pair<2, N>(w, block, x, sums);
    multiply_pair<3, N>(w, block, x, sums);
    finish_scale_mins<N>(w, block, x, sums, acc);
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
const PanelFormat k_panel_q5_k = panel_format<PanelBlock>("q5_k");

}  // namespace zinc::cpu::ZINC_ISA
