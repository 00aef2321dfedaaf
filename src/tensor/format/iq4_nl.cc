// IQ4_NL: 32 elements, d * level[q] with 4-bit q into a table of 16 levels. Nibbles as in Q4_0.
#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 32;
  uint16_t d;  // f16
  uint8_t q[16];
};
static_assert(sizeof(Block) == 18);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t j = 0; j < 16; ++j) out[j] = d * static_cast<float>(kIq4Levels[block.q[j] & 15]);
  for (size_t j = 0; j < 16; ++j) out[j + 16] = d * static_cast<float>(kIq4Levels[block.q[j] >> 4]);
}

}  // namespace

extern const Format k_iq4_nl = block_format<Block, dequantize_block>("iq4_nl", 20);

}  // namespace zinc
