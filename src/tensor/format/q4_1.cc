// Q4_1: 32 elements, d * q + m with 4-bit q. Byte j holds element j (low nibble) and j + 16 (high nibble).
#include "tensor/block.h"
#include "tensor/half.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 32;
  uint16_t d;  // f16
  uint16_t m;  // f16
  uint8_t q[16];
};
static_assert(sizeof(Block) == 20);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  const float m = half_to_float(block.m);
  for (size_t j = 0; j < 16; ++j) out[j] = static_cast<float>(block.q[j] & 15) * d + m;
  for (size_t j = 0; j < 16; ++j) out[j + 16] = static_cast<float>(block.q[j] >> 4) * d + m;
}

}  // namespace

extern const Format k_q4_1 = block_format<Block, dequantize_block>("q4_1", 3);

}  // namespace zinc
