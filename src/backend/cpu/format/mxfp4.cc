// MXFP4: blocks of 32: x = 2^(e - 127) * E2M1[q]. Scales below 2^-126 are treated as 0.
#include "backend/cpu/format/nibble_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : PlainCodes {
  static constexpr int kBias = kByteBias;
  static constexpr size_t kHeaderBytes = 16;
  struct FileBlock {
    uint8_t e;
    uint8_t q[16];
  };
  static B value(B code) { return b_lookup(b_table(kE2m1Biased), code); }
  static F scale(const uint8_t* w) {
    return f_from_exponent(i_load_u8(w));
  }  // half the scale: table values are doubled
  static void pack_header(const FileBlock& file_block, size_t row, uint8_t* out) { out[row] = file_block.e; }
};

}  // namespace

extern const PanelFormat k_panel_mxfp4;
const PanelFormat k_panel_mxfp4 = panel_format<NibbleBlock<Kind>>("mxfp4");

}  // namespace zinc::cpu::ZINC_ISA
