// IQ3_XXS: 256 elements in 8 groups of 32, each eight points of a 4-dimensional grid with signs and a 4-bit scale.
#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint16_t d;               // f16
  uint8_t codes[64];        // grid indices
  uint8_t signs_scale[32];  // a u32 per group: four times 7 sign bits, the scale in its top bits
};
static_assert(sizeof(Block) == 98);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t group = 0; group < 8; ++group) {
    uint32_t packed;
    std::memcpy(&packed, block.signs_scale + group * 4, sizeof(packed));
    const float scale = d * (0.5f + static_cast<float>(packed >> 28)) * 0.5f;
    for (size_t l = 0; l < 8; ++l) {
      const uint8_t signs = static_cast<uint8_t>(expand_signs(packed >> 7 * (l / 2) & 127) >> l % 2 * 4);
      write_signed(kIq3XxsGrid[block.codes[group * 8 + l]], signs, scale, out.data() + group * 32 + l * 4);
    }
  }
}

}  // namespace

extern const Format k_iq3_xxs = block_format<Block, dequantize_block>("iq3_xxs", 18);

}  // namespace zinc
