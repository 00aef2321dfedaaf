// Q5_K: 256 elements in 8 groups of 32, d * scale * q - dmin * min with 5-bit q and 6-bit scale and min.
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
  uint8_t high[32];    // bit g of byte l: fifth bit of element l of group g
  uint8_t q[128];      // 32 bytes per two groups: low nibbles the first, high nibbles the second
};
static_assert(sizeof(Block) == 176);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  const float dmin = half_to_float(block.dmin);
  for (size_t group = 0; group < 8; ++group) {
    const ScaleMin packed = k_scale_min(block.scales, group);
    const float scale = d * static_cast<float>(packed.scale);
    const float min = dmin * static_cast<float>(packed.min);
    const uint8_t* q = block.q + group / 2 * 32;
    const size_t shift = group % 2 * 4;
    float* to = out.data() + group * 32;
    for (size_t l = 0; l < 32; ++l) {
      const int value = (q[l] >> shift & 15) | (block.high[l] >> group & 1) << 4;
      to[l] = scale * static_cast<float>(value) - min;
    }
  }
}

}  // namespace

extern const Format k_q5_k = block_format<Block, dequantize_block>("q5_k", 13);

}  // namespace zinc
