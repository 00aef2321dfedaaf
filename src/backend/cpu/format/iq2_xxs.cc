// IQ2_XXS: groups of 32, each four points of an 8-dimensional grid with signs and a scale.
#include "backend/cpu/format/grid_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : Iq2Levels<32> {
  struct FileBlock {
    uint16_t d;
    uint8_t
        codes[64];  // of a group: four grid indices; a u32 with four times 7 sign bits and the scale in the top bits
  };
  static_assert(sizeof(FileBlock) == 66);

  static void read(const FileBlock& file_block, GridRow& row) {
    row.d = file_block.d;
    for (size_t g = 0; g < 8; ++g) {
      const uint32_t indices = word_at(file_block.codes, g * 2), signs = word_at(file_block.codes, g * 2 + 1);
      row.scales[g] = static_cast<uint8_t>(signs >> 28);
      for (size_t l = 0; l < 4; ++l) {
        write_point(kIq2XxsGrid[indices >> 8 * l & 255], expand_signs(signs >> 7 * l & 127),
                    row.codes + g * 32 + l * 8);
      }
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_iq2_xxs;
const PanelFormat k_panel_iq2_xxs = panel_format<GridBlock<Kind>>("iq2_xxs");

}  // namespace zinc::cpu::ZINC_ISA
