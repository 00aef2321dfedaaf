// IQ3_XXS: groups of 32, each eight points of a 4-dimensional grid with signs and a scale.
#include "backend/cpu/format/grid_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : SignedLevels<FourBitCodes, 32, 3, 4, 12, 20, 28, 36, 44, 52, 62> {
  static constexpr float kFactor = 0.25f;
  struct FileBlock {
    uint16_t d;
    uint8_t indices[64];
    uint8_t signs[32];  // a u32 per group: four times 7 sign bits, the scale in the top bits
  };
  static_assert(sizeof(FileBlock) == 98);

  static void read(const FileBlock& file_block, GridRow& row) {
    row.d = file_block.d;
    for (size_t g = 0; g < 8; ++g) row.scales[g] = static_cast<uint8_t>(word_at(file_block.signs, g) >> 28);
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t signs = expand_signs(word_at(file_block.signs, i / 8) >> i % 8 / 2 * 7 & 127);
      write<3>(kIq3XxsGrid[file_block.indices[i]], signs >> i % 2 * 4, row.codes + i * 4);
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_iq3_xxs;
const PanelFormat k_panel_iq3_xxs = panel_format<GridBlock<Kind>>("iq3_xxs");

}  // namespace zinc::cpu::ZINC_ISA
