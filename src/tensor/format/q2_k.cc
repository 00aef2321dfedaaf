// Q2_K: 256 elements in 16 groups of 16, d * scale * q - dmin * min with 2-bit q and 4-bit scale and min.
#include "tensor/block.h"
#include "tensor/half.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint8_t scale_min[16];  // low nibble: scale, high nibble: min
  uint8_t q[64];          // byte l of half h: elements 128 h + 32 k + l in bits 2 k and 2 k + 1
  uint16_t d;             // f16
  uint16_t dmin;          // f16
};
static_assert(sizeof(Block) == 84);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  const float dmin = half_to_float(block.dmin);
  for (size_t group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scale_min[group] & 15);
    const float min = dmin * static_cast<float>(block.scale_min[group] >> 4);
    const uint8_t* q = block.q + group / 8 * 32 + group % 2 * 16;
    const size_t shift = group % 8 / 2 * 2;
    for (size_t l = 0; l < 16; ++l) out[group * 16 + l] = scale * static_cast<float>(q[l] >> shift & 3) - min;
  }
}

}  // namespace

extern const Format k_q2_k = block_format<Block, dequantize_block>("q2_k", 10);

}  // namespace zinc
