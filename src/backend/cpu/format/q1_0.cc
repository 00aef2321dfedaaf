// Q1_0: blocks of 128: x = d or -d, by one bit.
#include "backend/cpu/format/plain_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind {
  static constexpr int kElems = 128, kBits = 1;
  struct FileBlock {
    uint16_t d;
    uint8_t positive[16];  // bit j % 8 of byte j / 8
  };
  static_assert(sizeof(FileBlock) == 18);

  static void read(const FileBlock& file_block, uint8_t* codes) {
    for (size_t j = 0; j < 128; ++j) codes[j] = file_block.positive[j / 8] >> j % 8 & 1;
  }
};

}  // namespace

extern const PanelFormat k_panel_q1_0;
const PanelFormat k_panel_q1_0 = panel_format<PlainBlock<Kind>>("q1_0");

}  // namespace zinc::cpu::ZINC_ISA
