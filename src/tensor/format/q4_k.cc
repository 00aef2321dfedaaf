// Q4_K: 256 elements in 8 groups of 32, d * scale * q - dmin * min with 4-bit q and 6-bit scale and min.
#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/k_scales.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint16_t d;          // f16
  uint16_t dmin;       // f16
  uint8_t scales[12];  // tensor/k_scales.h
  uint8_t q[128];      // 32 bytes per two groups: low nibbles the first, high nibbles the second
};
static_assert(sizeof(Block) == 144);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  const float dmin = half_to_float(block.dmin);
  for (size_t pair = 0; pair < 4; ++pair) {
    const ScaleMin first = k_scale_min(block.scales, 2 * pair);
    const ScaleMin second = k_scale_min(block.scales, 2 * pair + 1);
    const float d0 = d * static_cast<float>(first.scale), m0 = dmin * static_cast<float>(first.min);
    const float d1 = d * static_cast<float>(second.scale), m1 = dmin * static_cast<float>(second.min);
    const uint8_t* q = block.q + pair * 32;
    float* to = out.data() + pair * 64;
    for (size_t l = 0; l < 32; ++l) to[l] = d0 * static_cast<float>(q[l] & 15) - m0;
    for (size_t l = 0; l < 32; ++l) to[l + 32] = d1 * static_cast<float>(q[l] >> 4) - m1;
  }
}

}  // namespace

extern const Format k_q4_k = block_format<Block, dequantize_block>("q4_k", 12);

}  // namespace zinc
