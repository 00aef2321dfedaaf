// IQ2_S: groups of 16, each two points of an 8-dimensional grid with free signs and a scale.
#include "backend/cpu/format/grid_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : Iq2Levels<16> {
  struct FileBlock {
    uint16_t d;
    uint8_t indices[32];  // low byte
    uint8_t signs[32];
    uint8_t high[8];    // the high two bits of four indices
    uint8_t scales[8];  // low nibble: even group, high nibble: odd group
  };
  static_assert(sizeof(FileBlock) == 82);

  static void read(const FileBlock& file_block, GridRow& row) {
    row.d = file_block.d;
    for (size_t g = 0; g < 16; ++g) row.scales[g] = file_block.scales[g / 2] >> g % 2 * 4 & 15;
    for (size_t i = 0; i < 32; ++i) {
      const size_t index = file_block.indices[i] | (file_block.high[i / 4] >> i % 4 * 2 & 3u) << 8;
      write_point(kIq2SGrid[index], file_block.signs[i], row.codes + i * 8);
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_iq2_s;
const PanelFormat k_panel_iq2_s = panel_format<GridBlock<Kind>>("iq2_s");

}  // namespace zinc::cpu::ZINC_ISA
