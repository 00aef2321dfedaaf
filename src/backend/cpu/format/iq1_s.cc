// IQ1_S: groups of 32, each four points of an 8-dimensional grid with a delta and a scale of 3 bits; stored as IQ1_M.
#include "backend/cpu/format/grid_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : Iq1Values {
  struct FileBlock {
    uint16_t d;
    uint8_t indices[32];  // low byte
    uint16_t high[8];     // per group: four times 3 bits of grid index, 3 bits of scale, sign of the delta
  };
  static_assert(sizeof(FileBlock) == 50);

  static void read(const FileBlock& file_block, GridRow& row) {
    row.d = file_block.d;
    for (size_t g = 0; g < 16; ++g) row.scales[g] = file_block.high[g / 2] >> 12 & 7;
    for (size_t i = 0; i < 32; ++i) {
      const uint32_t high = file_block.high[i / 4];
      write_point(file_block.indices[i] | (high >> i % 4 * 3 & 7) << 8, (high & 0x8000) != 0, row.codes + i * 8);
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_iq1_s;
const PanelFormat k_panel_iq1_s = panel_format<GridBlock<Kind>>("iq1_s");

}  // namespace zinc::cpu::ZINC_ISA
