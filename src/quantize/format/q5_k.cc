#include "quantize/affine_groups.h"
#include "quantize/block_quantizer.h"
#include "tensor/k_scales.h"

namespace zinc {

extern const Format k_q5_k;

namespace {

struct Block {  // tensor/format/q5_k.cc
  static constexpr size_t kElems = 256;
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t q[128];
};

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  const auto groups = AffineGroups<8, 31, 63>::quantize(x, importance, begin);
  Block block{};
  block.d = groups.d;
  block.dmin = groups.dmin;
  pack_k_scales(groups.scale, groups.min, block.scales);
  for (size_t pair = 0; pair < 4; ++pair) {
    const uint8_t* q = groups.q.data() + pair * 64;
    for (size_t l = 0; l < 32; ++l) {
      block.q[pair * 32 + l] = static_cast<uint8_t>((q[l] & 15) | (q[l + 32] & 15) << 4);
      const int high = q[l] >> 4 | (q[l + 32] >> 4) << 1;
      block.high[l] = static_cast<uint8_t>(block.high[l] | high << 2 * pair);
    }
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_q5_k = {.format = k_q5_k, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
