// IQ2_XS: groups of 16, each two points of an 8-dimensional grid with signs and a scale.
#include "backend/cpu/format/grid_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : Iq2Levels<16> {
  struct FileBlock {
    uint16_t d;
    uint16_t points[32];  // 9 bits of grid index, 7 sign bits
    uint8_t scales[8];    // low nibble: even group, high nibble: odd group
  };
  static_assert(sizeof(FileBlock) == 74);

  static void read(const FileBlock& file_block, GridRow& row) {
    row.d = file_block.d;
    for (size_t g = 0; g < 16; ++g) row.scales[g] = file_block.scales[g / 2] >> g % 2 * 4 & 15;
    for (size_t i = 0; i < 32; ++i) {
      const uint16_t point = file_block.points[i];
      write_point(kIq2XsGrid[point & 511], expand_signs(point >> 9), row.codes + i * 8);
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_iq2_xs;
const PanelFormat k_panel_iq2_xs = panel_format<GridBlock<Kind>>("iq2_xs");

}  // namespace zinc::cpu::ZINC_ISA
