// Q5_1: blocks of 32: x = d * q + m, q of 5 bits.
#include "backend/cpu/format/nibble_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : CodesWithMin {
  static constexpr bool kFifthBits = true;
  struct FileBlock {
    uint16_t d, m;
    uint8_t high[4], q[16];
  };
};

}  // namespace

extern const PanelFormat k_panel_q5_1;
const PanelFormat k_panel_q5_1 = panel_format<NibbleBlock<Kind>>("q5_1");

}  // namespace zinc::cpu::ZINC_ISA
