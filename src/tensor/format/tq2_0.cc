// TQ2_0: 256 elements, d * (q - 1) with 2-bit q.
#include "tensor/block.h"
#include "tensor/half.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint8_t q[64];  // byte m of half h: elements 128 h + 32 k + m in bits 2 k and 2 k + 1
  uint16_t d;     // f16
};
static_assert(sizeof(Block) == 66);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t group = 0; group < 8; ++group) {
    const uint8_t* q = block.q + group / 4 * 32;
    const size_t shift = group % 4 * 2;
    for (size_t m = 0; m < 32; ++m) out[group * 32 + m] = static_cast<float>((q[m] >> shift & 3) - 1) * d;
  }
}

}  // namespace

extern const Format k_tq2_0 = block_format<Block, dequantize_block>("tq2_0", 35);

}  // namespace zinc
