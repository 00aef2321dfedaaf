// IQ1_M: groups of 16, each two points of an 8-dimensional grid with a delta per point and a scale of 3 bits.
#include "backend/cpu/format/grid_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind : Iq1Values {
  struct FileBlock {
    uint8_t indices[32];  // low byte
    uint8_t high[16];     // a nibble per point: 3 bits of index, sign of the delta
    uint16_t scales[4];   // four times 3 bits of scale; the top nibbles together are d (f16)
  };
  static_assert(sizeof(FileBlock) == 56);

  static void read(const FileBlock& file_block, GridRow& row) {
    const uint16_t(&scales)[4] = file_block.scales;
    row.d =
        static_cast<uint16_t>(scales[0] >> 12 | scales[1] >> 12 << 4 | scales[2] >> 12 << 8 | scales[3] >> 12 << 12);
    for (size_t g = 0; g < 16; ++g) row.scales[g] = scales[g / 4] >> g % 4 * 3 & 7;
    for (size_t i = 0; i < 32; ++i) {
      const uint32_t nibble = file_block.high[i / 2] >> i % 2 * 4 & 15u;
      write_point(file_block.indices[i] | (nibble & 7) << 8, (nibble & 8) != 0, row.codes + i * 8);
    }
  }
};

}  // namespace

extern const PanelFormat k_panel_iq1_m;
const PanelFormat k_panel_iq1_m = panel_format<GridBlock<Kind>>("iq1_m");

}  // namespace zinc::cpu::ZINC_ISA
