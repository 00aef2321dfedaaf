// Q4_0: 32 elements, d * (q - 8) with 4-bit q. Byte j holds element j (low nibble) and j + 16 (high nibble).
#include "tensor/block.h"
#include "tensor/half.h"

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
  for (size_t j = 0; j < 16; ++j) out[j] = static_cast<float>((block.q[j] & 15) - 8) * d;
  for (size_t j = 0; j < 16; ++j) out[j + 16] = static_cast<float>((block.q[j] >> 4) - 8) * d;
}

}  // namespace

extern const Format k_q4_0 = block_format<Block, dequantize_block>("q4_0", 2);

}  // namespace zinc
