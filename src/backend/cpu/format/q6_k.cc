// Q6_K: blocks of 256 in 16 groups of 16: x = d * scale[g] * (q - 32), q of 6 bits, signed scales.
#include "backend/cpu/format/k_groups.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Q6KBlock {
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(Q6KBlock) == 210);

// d f16[16], scales s8[16][16], 32 bytes of padding, then the vectors in the order of use, so that the weights are one
// ascending stream from memory. Top bit pairs: vector v of a half holds two bits for each of its groups of 32; it
// precedes the nibbles of the half's even pair. 3392 bytes, 1 % more than on disk.
struct PanelBlock {
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_256;
  static constexpr size_t kScalesOffset = 32, kPaddingOffset = 288, kHeaderBytes = 320;
  static constexpr size_t kHalfVectors = 24;  // of a half: 8 of top bits, 16 of nibbles
  static constexpr uint16_t kBlockElems = 256, kPanelBlockBytes = kHeaderBytes + 2 * kHalfVectors * kVectorBytes;

  static constexpr size_t top_bits_offset(size_t pair, size_t v) {
    return kHeaderBytes + kVectorBytes * (pair / 2 * kHalfVectors + v / 4 * 12 + v % 4 * 2);
  }
  static constexpr size_t nibbles_offset(size_t pair, size_t v) {
    return pair % 2 == 0 ? top_bits_offset(pair, v) + kVectorBytes
                         : top_bits_offset(pair, v / 4 * 4) + kVectorBytes * (8 + v % 4);
  }

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    std::memset(out + kPaddingOffset, 0, kHeaderBytes - kPaddingOffset);
    for (size_t r = 0; r < kPanelRows; ++r) {
      Q6KBlock file_block;
      std::memcpy(&file_block, row_blocks[r], sizeof file_block);
      std::memcpy(out + r * 2, &file_block.d, 2);
      for (size_t g = 0; g < 16; ++g) out[kScalesOffset + g * 16 + r] = static_cast<uint8_t>(file_block.scales[g]);
      for (size_t half = 0; half < 2; ++half) {
        for (size_t v = 0; v < 8; ++v) {  // on disk the low nibbles are groups 0 and 1, the high nibbles 2 and 3
          const uint32_t first = word_at(file_block.low, half * 16 + v),
                         second = word_at(file_block.low, half * 16 + 8 + v);
          put_word(out + nibbles_offset(half * 2, v), r, join_low(first, second));
          put_word(out + nibbles_offset(half * 2 + 1, v), r, join_high(first, second));
          put_word(out + top_bits_offset(half * 2, v), r, word_at(file_block.high, half * 8 + v));
        }
      }
    }
  }

  // Groups 2*pair and 2*pair+1 of 32; of each the 16 quants of one half, which have their own scale.
  template <int pair, int half, int N>
  static void multiply_pair(const uint8_t* w, size_t block, const TokenActivation* x, F (&sums)[N]) {
    const B top = b_set(0x30);
    const size_t k = block * 256 + pair * 64, group16 = block * 16 + pair * 4 + half;
    I even[N], odd[N];
    for (int n = 0; n < N; ++n) {
      even[n] = i_set(-32 * x[n].sum16[group16]);
      odd[n] = i_set(-32 * x[n].sum16[group16 + 2]);
    }
    for (size_t v = half * 4; v < half * 4 + 4; ++v) {
      const B high = b_load(w + top_bits_offset(pair, v)), both = b_load(w + nibbles_offset(pair, v));
      const B q0 = b_or(b_low_nibbles(both), b_and(shift_to_top<pair % 2 * 2>(high), top));
      const B q1 = b_or(b_high_nibbles(both), b_and(shift_to_top<pair % 2 * 2 + 1>(high), top));
      dot_pair<N>(even, odd, q0, q1, x, k + v * 4);
    }
    const int8_t* scales = reinterpret_cast<const int8_t*>(w) + kScalesOffset + pair * 64 + half * 16;
    add_scaled<N>(sums, even, i_to_f(i_load_s8(scales)));
    add_scaled<N>(sums, odd, i_to_f(i_load_s8(scales + 32)));
  }

  template <int first_pair, int N>
  static void multiply_half(const uint8_t* w, size_t block, const TokenActivation* x, F (&sums)[N]) {
    multiply_pair<first_pair, 0, N>(w, block, x, sums);
    multiply_pair<first_pair + 1, 0, N>(w, block, x, sums);
    multiply_pair<first_pair, 1, N>(w, block, x, sums);
    multiply_pair<first_pair + 1, 1, N>(w, block, x, sums);
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    multiply_half<0, N>(w, block, x, sums);
    multiply_half<2, N>(w, block, x, sums);
    const F d = f_load_half(reinterpret_cast<const uint16_t*>(w));
    for (int n = 0; n < N; ++n) acc[n] = f_fma(f_mul(d, f_set(x[n].scale[block])), sums[n], acc[n]);
  }

  template <int field>
  static B shift_to_top(B bits) {  // bits 2*field, 2*field+1 to 4, 5
    if constexpr (field < 2) {
      return b_shift_left<4 - 2 * field>(bits);
    } else {
      return b_shift_right<2 * field - 4>(bits);
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_q6_k;
const PanelFormat k_panel_q6_k = panel_format<PanelBlock>("q6_k");

}  // namespace zinc::cpu::ZINC_ISA
