// Q1_0: 128 elements of d or -d, by one bit each.
#include "tensor/block.h"
#include "tensor/half.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 128;
  uint16_t d;            // f16
  uint8_t positive[16];  // bit j % 8 of byte j / 8
};
static_assert(sizeof(Block) == 18);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t j = 0; j < 128; ++j) out[j] = (block.positive[j / 8] >> j % 8 & 1) != 0 ? d : -d;
}

}  // namespace

extern const Format k_q1_0 = block_format<Block, dequantize_block>("q1_0", 41);

}  // namespace zinc
