// Q2_0: blocks of 64: x = d * (q - 1), q of 2 bits.
#include "backend/cpu/format/plain_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind {
  static constexpr int kElems = 64, kBits = 2;
  struct FileBlock {
    uint16_t d;
    uint8_t q[16];  // element j in bits 2 (j % 4) of byte j / 4
  };
  static_assert(sizeof(FileBlock) == 18);

  static void read(const FileBlock& file_block, uint8_t* codes) {
    for (size_t j = 0; j < 64; ++j) codes[j] = file_block.q[j / 4] >> j % 4 * 2 & 3;
  }
};

}  // namespace

extern const PanelFormat k_panel_q2_0;
const PanelFormat k_panel_q2_0 = panel_format<PlainBlock<Kind>>("q2_0");

}  // namespace zinc::cpu::ZINC_ISA
