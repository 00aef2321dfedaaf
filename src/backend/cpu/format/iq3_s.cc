// IQ3_S: groups of 32, each eight points of a 4-dimensional grid with free signs and a scale.
#include "backend/cpu/format/grid_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : SignedLevels<FourBitCodes, 32, 3, 1, 3, 5, 7, 9, 11, 13, 15> {
  static constexpr float kFactor = 1;
  struct FileBlock {
    uint16_t d;
    uint8_t indices[64];  // low byte
    uint8_t high[8];      // ninth bit of eight indices
    uint8_t signs[32];
    uint8_t scales[4];  // low nibble: even group, high nibble: odd group
  };
  static_assert(sizeof(FileBlock) == 110);

  static void read(const FileBlock& file_block, GridRow& row) {
    row.d = file_block.d;
    for (size_t g = 0; g < 8; ++g) row.scales[g] = file_block.scales[g / 2] >> g % 2 * 4 & 15;
    for (size_t i = 0; i < 64; ++i) {
      const size_t index = file_block.indices[i] | (file_block.high[i / 8] >> i % 8 & 1u) << 8;
      write<1>(kIq3SGrid[index], file_block.signs[i / 2] >> i % 2 * 4, row.codes + i * 4);
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_iq3_s;
const PanelFormat k_panel_iq3_s = panel_format<GridBlock<Kind>>("iq3_s");

}  // namespace zinc::cpu::ZINC_ISA
