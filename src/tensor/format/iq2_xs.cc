// IQ2_XS: 256 elements in 16 groups of 16, each two points of an 8-dimensional grid with signs and a 4-bit scale.
#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint16_t d;          // f16
  uint16_t codes[32];  // 9 bits of grid index, 7 sign bits
  uint8_t scales[8];   // low nibble: first group of 16, high nibble: second
};
static_assert(sizeof(Block) == 74);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t i = 0; i < 32; ++i) {
    const int nibble = block.scales[i / 4] >> i % 4 / 2 * 4 & 15;
    const float scale = d * (0.5f + static_cast<float>(nibble)) * 0.25f;
    const uint16_t code = block.codes[i];
    write_signed(kIq2XsGrid[code & 511], expand_signs(code >> 9), scale, out.data() + i * 8);
  }
}

}  // namespace

extern const Format k_iq2_xs = block_format<Block, dequantize_block>("iq2_xs", 17);

}  // namespace zinc
