// IQ4_NL: blocks of 32: x = d * table[q].
#include "backend/cpu/format/nibble_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : PlainCodes {
  static constexpr int kBias = kByteBias;
  struct FileBlock {
    uint16_t d;
    uint8_t q[16];
  };
  static B value(B code) { return b_lookup(b_table(kIq4Biased), code); }
};

}  // namespace

extern const PanelFormat k_panel_iq4_nl;
const PanelFormat k_panel_iq4_nl = panel_format<NibbleBlock<Kind>>("iq4_nl");

}  // namespace zinc::cpu::ZINC_ISA
