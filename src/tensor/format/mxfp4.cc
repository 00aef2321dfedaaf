// MXFP4: 32 elements, E2M1 values times the power of two 2^(e - 127). Nibbles as in Q4_0.
#include <bit>

#include "tensor/block.h"
#include "tensor/fp4.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 32;
  uint8_t e;  // E8M0; 255 (NaN in the OCP specification) is read as 2^128, as converters write it
  uint8_t q[16];
};
static_assert(sizeof(Block) == 17);

// 2^(e - 128), half the block's scale; subnormal for e < 2.
float half_scale(uint32_t e) { return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_scale(block.e);
  for (size_t j = 0; j < 16; ++j) out[j] = static_cast<float>(kTwiceFp4[block.q[j] & 15]) * d;
  for (size_t j = 0; j < 16; ++j) out[j + 16] = static_cast<float>(kTwiceFp4[block.q[j] >> 4]) * d;
}

}  // namespace

extern const Format k_mxfp4 = block_format<Block, dequantize_block>("mxfp4", 39);

}  // namespace zinc
