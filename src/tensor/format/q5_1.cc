// Q5_1: 32 elements, d * q + m with 5-bit q: low four bits as in Q4_1, fifth bit of element j is bit j of `high`.
#include "tensor/block.h"
#include "tensor/half.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 32;
  uint16_t d;       // f16
  uint16_t m;       // f16
  uint8_t high[4];  // little-endian u32
  uint8_t q[16];
};
static_assert(sizeof(Block) == 24);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  const float m = half_to_float(block.m);
  uint32_t high;
  std::memcpy(&high, block.high, sizeof(high));
  for (uint32_t j = 0; j < 16; ++j) {
    const uint32_t low_half = (block.q[j] & 15u) | (high >> j & 1) << 4;
    const uint32_t high_half = (block.q[j] >> 4) | (high >> (j + 16) & 1) << 4;
    out[j] = static_cast<float>(static_cast<int>(low_half)) * d + m;
    out[j + 16] = static_cast<float>(static_cast<int>(high_half)) * d + m;
  }
}

}  // namespace

extern const Format k_q5_1 = block_format<Block, dequantize_block>("q5_1", 7);

}  // namespace zinc
