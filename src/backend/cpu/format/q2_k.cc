// Q2_K: blocks of 256 in 16 groups of 16: x = d * scale[g] * q - dmin * min[g], q of 2 bits.
#include "backend/cpu/format/code_planes.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Q2KBlock {
  uint8_t scale_min[16];  // low nibble: scale, high nibble: min
  uint8_t q[64];          // byte l of half h: quants l of groups 4 h .. 4 h + 3 of 32
  uint16_t d, dmin;
};
static_assert(sizeof(Q2KBlock) == 84);

// d f16[16], dmin f16[16], scales[16][16] and mins[8][16][2] in nibbles, codes. 1344 bytes, the same as on disk.
struct PanelBlock {
  using Codes = TwoBitCodes;
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_256;
  static constexpr int kGroupCodes = 16, kBias = 0;
  static constexpr size_t kNibbleMinsOffset = kScalesOffset + 128, kHeaderBytes = kNibbleMinsOffset + 128;
  static constexpr uint16_t kBlockElems = kCodes, kPanelBlockBytes = kHeaderBytes + Codes::kBytes;
  static B value(B code) { return code; }

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    uint8_t scale_mins[kPanelRows][16];
    for (size_t r = 0; r < kPanelRows; ++r) {
      Q2KBlock file_block;
      std::memcpy(&file_block, row_blocks[r], sizeof file_block);
      std::memcpy(out + r * 2, &file_block.d, 2);
      std::memcpy(out + kDminOffset + r * 2, &file_block.dmin, 2);
      std::memcpy(scale_mins[r], file_block.scale_min, 16);
      for (size_t v = 0; v < 16; ++v)
        put_word(out + kHeaderBytes + v * kVectorBytes, r, word_at(file_block.q, v));  // paired as on disk
    }
    for (size_t i = 0; i < 256; ++i) {
      put_nibble(out + kScalesOffset, i, scale_mins[i % 16][i / 16] & 15);
      put_nibble(out + kNibbleMinsOffset, i, scale_mins[i % 32 / 2][i / 32 * 2 + i % 2] >> 4);
    }
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    uint8_t scales[256], mins[256];
    get_nibbles(w + kScalesOffset, scales);
    get_nibbles(w + kNibbleMinsOffset, mins);
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    add_groups<PanelBlock, N>(w + kHeaderBytes, scales, block, x, sums);
    const F d = f_load_half(reinterpret_cast<const uint16_t*>(w));
    const F dmin = f_load_half(reinterpret_cast<const uint16_t*>(w + kDminOffset));
    for (int n = 0; n < N; ++n) {
      I offset = i_zero();
      for (int pair = 0; pair < 8; ++pair) offset = dot2(offset, mins + pair * 32, x[n].sum16 + block * 16 + pair * 2);
      const F x_scale = f_set(x[n].scale[block]);
      acc[n] = f_fma(f_mul(d, x_scale), sums[n], acc[n]);
      acc[n] = f_fnma(f_mul(dmin, x_scale), i_to_f(offset), acc[n]);
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_q2_k;
const PanelFormat k_panel_q2_k = panel_format<PanelBlock>("q2_k");

}  // namespace zinc::cpu::ZINC_ISA
