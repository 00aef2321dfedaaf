// Q5_0: blocks of 32: x = d * (q - 16), q of 5 bits.
#include "backend/cpu/format/nibble_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : PlainCodes {
  static constexpr int kBias = 16;
  static constexpr bool kFifthBits = true;
  struct FileBlock {
    uint16_t d;
    uint8_t high[4], q[16];
  };
};

}  // namespace

extern const PanelFormat k_panel_q5_0;
const PanelFormat k_panel_q5_0 = panel_format<NibbleBlock<Kind>>("q5_0");

}  // namespace zinc::cpu::ZINC_ISA
