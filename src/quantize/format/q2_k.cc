#include "quantize/affine_groups.h"
#include "quantize/block_quantizer.h"

namespace zinc {

extern const Format k_q2_k;

namespace {

struct Block {  // tensor/format/q2_k.cc
  static constexpr size_t kElems = 256;
  uint8_t scale_min[16];
  uint8_t q[64];
  uint16_t d;
  uint16_t dmin;
};

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  const auto groups = AffineGroups<16, 3, 15>::quantize(x, importance, begin);
  Block block{};
  block.d = groups.d;
  block.dmin = groups.dmin;
  for (size_t g = 0; g < 16; ++g) block.scale_min[g] = static_cast<uint8_t>(groups.scale[g] | groups.min[g] << 4);
  for (size_t half = 0; half < 2; ++half) {
    const uint8_t* q = groups.q.data() + half * 128;
    for (size_t l = 0; l < 32; ++l) {
      block.q[half * 32 + l] = static_cast<uint8_t>(q[l] | q[l + 32] << 2 | q[l + 64] << 4 | q[l + 96] << 6);
    }
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_q2_k = {.format = k_q2_k, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
