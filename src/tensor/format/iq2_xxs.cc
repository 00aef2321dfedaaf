// IQ2_XXS: 256 elements in 8 groups of 32, each four points of an 8-dimensional grid with signs and a 4-bit scale.
#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint16_t d;         // f16
  uint8_t codes[64];  // 8 bytes per group: four grid indices, then a u32 with four times 7 sign bits and the scale in
                      // its top bits
};
static_assert(sizeof(Block) == 66);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t group = 0; group < 8; ++group) {
    const uint8_t* codes = block.codes + group * 8;
    uint32_t packed;
    std::memcpy(&packed, codes + 4, sizeof(packed));
    const float scale = d * (0.5f + static_cast<float>(packed >> 28)) * 0.25f;
    for (size_t l = 0; l < 4; ++l) {
      const uint8_t signs = expand_signs(packed >> 7 * l & 127);
      write_signed(kIq2XxsGrid[codes[l]], signs, scale, out.data() + group * 32 + l * 8);
    }
  }
}

}  // namespace

extern const Format k_iq2_xxs = block_format<Block, dequantize_block>("iq2_xxs", 16);

}  // namespace zinc
