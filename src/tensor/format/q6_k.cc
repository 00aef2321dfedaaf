// Q6_K: 256 elements in 16 groups of 16, d * scale * (q - 32) with 6-bit q and signed byte scales.
#include "tensor/block.h"
#include "tensor/half.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint8_t low[128];  // half h of 128 elements has 64 bytes: elements 0-63 in the low nibbles, 64-127 in the high ones
  uint8_t high[64];  // byte l of half h: top two bits of its elements l, l + 32, l + 64, l + 96
  int8_t scales[16];
  uint16_t d;  // f16
};
static_assert(sizeof(Block) == 210);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scales[group]);
    const size_t half = group / 8, quarter = group % 8 / 2, begin = group % 2 * 16;
    const uint8_t* low = block.low + half * 64 + quarter % 2 * 32 + begin;
    const uint8_t* high = block.high + half * 32 + begin;
    const size_t low_shift = quarter / 2 * 4, high_shift = quarter * 2;
    float* to = out.data() + group * 16;
    for (size_t l = 0; l < 16; ++l) {
      const int value = (low[l] >> low_shift & 15) | (high[l] >> high_shift & 3) << 4;
      to[l] = scale * static_cast<float>(value - 32);
    }
  }
}

}  // namespace

extern const Format k_q6_k = block_format<Block, dequantize_block>("q6_k", 14);

}  // namespace zinc
