// Q3_K: blocks of 256 in 16 groups of 16: x = d * scale[g] * (q - 4), q of 3 bits, signed scales.
#include "backend/cpu/format/code_planes.h"

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

// d f16[16], scales s8[16][16], 32 bytes of padding, codes. 1856 bytes, 5 % more than on disk, for scales that are
// bytes.
struct PanelBlock {
  using Codes = ThreeBitCodes;
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_256;
  static constexpr int kGroupCodes = 16, kBias = 4;
  static constexpr size_t kByteScalesOffset = 32, kPaddingOffset = 288, kHeaderBytes = 320;
  static constexpr uint16_t kBlockElems = kCodes, kPanelBlockBytes = kHeaderBytes + Codes::kBytes;
  static B value(B code) { return code; }

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    std::memset(out + kPaddingOffset, 0, kHeaderBytes - kPaddingOffset);
    for (size_t r = 0; r < kPanelRows; ++r) {
      Q3KBlock file_block;
      std::memcpy(&file_block, row_blocks[r], sizeof file_block);
      std::memcpy(out + r * 2, &file_block.d, 2);
      for (size_t g = 0; g < 16; ++g) out[kByteScalesOffset + g * 16 + r] = static_cast<uint8_t>(file_block.scale(g));
      uint8_t* codes = out + kHeaderBytes;  // paired as on disk
      for (size_t v = 0; v < 8; ++v) put_word(codes + v * kVectorBytes, r, word_at(file_block.high, v));
      for (size_t v = 0; v < 16; ++v)
        put_word(codes + Codes::kThirdBitBytes + v * kVectorBytes, r, word_at(file_block.low, v));
    }
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    add_groups<PanelBlock, N>(w + kHeaderBytes, w + kByteScalesOffset, block, x, sums);
    const F d = f_load_half(reinterpret_cast<const uint16_t*>(w));
    for (int n = 0; n < N; ++n) acc[n] = f_fma(f_mul(d, f_set(x[n].scale[block])), sums[n], acc[n]);
  }
};

}  // namespace

extern const PanelFormat k_panel_q3_k;
const PanelFormat k_panel_q3_k = panel_format<PanelBlock>("q3_k");

}  // namespace zinc::cpu::ZINC_ISA
