// Q2_0: 64 elements, d * (q - 1) with 2-bit q: element j in bits 2 (j % 4) of byte j / 4.
#include "tensor/block.h"
#include "tensor/half.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 64;
  uint16_t d;  // f16
  uint8_t q[16];
};
static_assert(sizeof(Block) == 18);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t j = 0; j < 64; ++j) out[j] = static_cast<float>((block.q[j / 4] >> j % 4 * 2 & 3) - 1) * d;
}

}  // namespace

extern const Format k_q2_0 = block_format<Block, dequantize_block>("q2_0", 42);

}  // namespace zinc
