// Q4_1: blocks of 32: x = d * q + m.
#include "backend/cpu/format/nibble_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : CodesWithMin {
  struct FileBlock {
    uint16_t d, m;
    uint8_t q[16];
  };
};

}  // namespace

extern const PanelFormat k_panel_q4_1;
const PanelFormat k_panel_q4_1 = panel_format<NibbleBlock<Kind>>("q4_1");

}  // namespace zinc::cpu::ZINC_ISA
