// Q3_K: 256 elements in 16 groups of 16, d * (scale - 32) * q with q in -4..3 and 6-bit scales.
#include "tensor/block.h"
#include "tensor/half.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint8_t high[32];    // bit k of byte l: 0 subtracts 4 from element 32 k + l
  uint8_t q[64];       // byte l of half h: elements 128 h + 32 k + l in bits 2 k and 2 k + 1
  uint8_t scales[12];  // low nibbles of 0-7, of 8-15 above them, then the top two bits of i, i + 4, i + 8, i + 12
  uint16_t d;          // f16
};
static_assert(sizeof(Block) == 110);

int scale_of(const Block& block, size_t group) {
  const int low = block.scales[group % 8] >> (group / 8 * 4) & 15;
  const int top = block.scales[8 + group % 4] >> (group / 4 * 2) & 3;
  return (low | top << 4) - 32;
}

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(scale_of(block, group));
    const uint8_t* q = block.q + group / 8 * 32 + group % 2 * 16;
    const uint8_t* high = block.high + group % 2 * 16;
    const size_t shift = group % 8 / 2 * 2;
    const size_t bit = group / 2;
    for (size_t l = 0; l < 16; ++l) {
      const int value = (q[l] >> shift & 3) + (high[l] >> bit & 1) * 4 - 4;
      out[group * 16 + l] = scale * static_cast<float>(value);
    }
  }
}

}  // namespace

extern const Format k_q3_k = block_format<Block, dequantize_block>("q3_k", 11);

}  // namespace zinc
