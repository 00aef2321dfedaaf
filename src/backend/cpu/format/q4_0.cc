// Q4_0: blocks of 32: x = d * (q - 8).
#include "backend/cpu/format/nibble_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : PlainCodes {
  static constexpr int kBias = 8;
  struct FileBlock {
    uint16_t d;
    uint8_t q[16];
  };
};

}  // namespace

extern const PanelFormat k_panel_q4_0;
const PanelFormat k_panel_q4_0 = panel_format<NibbleBlock<Kind>>("q4_0");

}  // namespace zinc::cpu::ZINC_ISA
