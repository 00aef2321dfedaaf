// Q3_K: blocks of 256 in 16 groups of 16: x = d * scale[g] * (q - 4), q of 3 bits, signed scales.
#include "backend/cpu/format/k_groups.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Q3KBlock {
  uint8_t high[32];    // bit g of byte l: the third bit of quant l of group g of 32
  uint8_t low[64];     // byte l of half h: the low bits of quants l of groups 4 h .. 4 h + 3
  uint8_t scales[12];  // low nibbles of 0-7, of 8-15 above them, then the top two bits of i, i + 4, i + 8, i + 12
  uint16_t d;

  int scale(size_t group16) const {
    const int nibble = scales[group16 % 8] >> group16 / 8 * 4 & 15,
              top = scales[8 + group16 % 4] >> group16 / 4 * 2 & 3;
    return (nibble | top << 4) - 32;
  }
};
static_assert(sizeof(Q3KBlock) == 110);

// d f16[16], scales s8[16][16], 32 bytes of padding, then eight vectors of third bits and eight vectors of low bits for
// each half, paired as on disk. 1856 bytes, 5 % more than on disk, for scales that are bytes.
struct PanelBlock {
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_256;
  static constexpr size_t kScalesOffset = 32, kPaddingOffset = 288, kHeaderBytes = 320;
  static constexpr uint16_t kBlockElems = 256, kPanelBlockBytes = kHeaderBytes + 24 * kVectorBytes;

  static constexpr size_t high_offset(size_t v) { return kHeaderBytes + v * kVectorBytes; }
  static constexpr size_t low_offset(size_t half, size_t v) { return high_offset(8 + half * 8 + v); }

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    std::memset(out + kPaddingOffset, 0, kHeaderBytes - kPaddingOffset);
    for (size_t r = 0; r < kPanelRows; ++r) {
      Q3KBlock file_block;
      std::memcpy(&file_block, row_blocks[r], sizeof file_block);
      std::memcpy(out + r * 2, &file_block.d, 2);
      for (size_t g = 0; g < 16; ++g) out[kScalesOffset + g * 16 + r] = static_cast<uint8_t>(file_block.scale(g));
      for (size_t v = 0; v < 8; ++v) put_word(out + high_offset(v), r, word_at(file_block.high, v));
      for (size_t v = 0; v < 16; ++v) put_word(out + low_offset(v / 8, v % 8), r, word_at(file_block.low, v));
    }
  }

  // Quants of group `group` of 32, from the vectors of low bits (bits 2 * (group % 4)) and of third bits (bit group).
  template <int group>
  static B quants(B low, B high) {
    const B two = b_and(b_shift_right<2 * (group % 4)>(low), b_set(3));
    if constexpr (group < 2) {
      return b_or(two, b_and(b_shift_left<2 - group>(high), b_set(4)));
    } else {
      return b_or(two, b_and(b_shift_right<group - 2>(high), b_set(4)));
    }
  }

  // Groups 2*pair and 2*pair+1 of 32; of each the 16 quants of one half, which have their own scale.
  template <int pair, int half, int N>
  static void multiply_pair(const uint8_t* w, size_t block, const TokenActivation* x, F (&sums)[N]) {
    const size_t k = block * 256 + pair * 64, group16 = block * 16 + pair * 4 + half;
    I even[N], odd[N];
    for (int n = 0; n < N; ++n) {
      even[n] = i_set(-4 * x[n].sum16[group16]);
      odd[n] = i_set(-4 * x[n].sum16[group16 + 2]);
    }
    for (size_t v = half * 4; v < half * 4 + 4; ++v) {
      const B low = b_load(w + low_offset(pair / 2, v)), high = b_load(w + high_offset(v));
      dot_pair<N>(even, odd, quants<2 * pair>(low, high), quants<2 * pair + 1>(low, high), x, k + v * 4);
    }
    const int8_t* scales = reinterpret_cast<const int8_t*>(w) + kScalesOffset + pair * 64 + half * 16;
    add_scaled<N>(sums, even, i_to_f(i_load_s8(scales)));
    add_scaled<N>(sums, odd, i_to_f(i_load_s8(scales + 32)));
  }

  template <int pair, int N>
  static void multiply_halves(const uint8_t* w, size_t block, const TokenActivation* x, F (&sums)[N]) {
    multiply_pair<pair, 0, N>(w, block, x, sums);
    multiply_pair<pair, 1, N>(w, block, x, sums);
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    multiply_halves<0, N>(w, block, x, sums);
    multiply_halves<1, N>(w, block, x, sums);
    multiply_halves<2, N>(w, block, x, sums);
    multiply_halves<3, N>(w, block, x, sums);
    const F d = f_load_half(reinterpret_cast<const uint16_t*>(w));
    for (int n = 0; n < N; ++n) acc[n] = f_fma(f_mul(d, f_set(x[n].scale[block])), sums[n], acc[n]);
  }
};

}  // namespace

extern const PanelFormat k_panel_q3_k;
const PanelFormat k_panel_q3_k = panel_format<PanelBlock>("q3_k");

}  // namespace zinc::cpu::ZINC_ISA
