// TQ2_0: blocks of 256: x = d * (q - 1), q of 2 bits.
#include "backend/cpu/format/plain_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind {
  static constexpr int kElems = 256, kBits = 2;
  struct FileBlock {
    uint8_t q[64];  // byte m of half h: elements 128 h + 32 k + m in bits 2 k and 2 k + 1
    uint16_t d;
  };
  static_assert(sizeof(FileBlock) == 66);

  static void read(const FileBlock& file_block, uint8_t* codes) {
    for (size_t group = 0; group < 8; ++group) {
      const uint8_t* q = file_block.q + group / 4 * 32;
      for (size_t m = 0; m < 32; ++m) codes[group * 32 + m] = q[m] >> group % 4 * 2 & 3;
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_tq2_0;
const PanelFormat k_panel_tq2_0 = panel_format<PlainBlock<Kind>>("tq2_0");

}  // namespace zinc::cpu::ZINC_ISA
