#include "quantize/block_quantizer.h"
#include "quantize/symmetric_groups.h"

namespace zinc {

extern const Format k_q6_k;

namespace {

struct Block {  // tensor/format/q6_k.cc
  static constexpr size_t kElems = 256;
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;
};

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  const auto groups = SymmetricGroups<32, 128>::quantize(x, importance, begin);
  Block block{};
  block.d = groups.d;
  std::copy(groups.scale.begin(), groups.scale.end(), block.scales);
  for (size_t half = 0; half < 2; ++half) {
    const int8_t* from = groups.q.data() + half * 128;
    for (size_t l = 0; l < 32; ++l) {
      const int q0 = from[l] + 32, q1 = from[l + 32] + 32, q2 = from[l + 64] + 32, q3 = from[l + 96] + 32;
      block.low[half * 64 + l] = static_cast<uint8_t>((q0 & 15) | (q2 & 15) << 4);
      block.low[half * 64 + 32 + l] = static_cast<uint8_t>((q1 & 15) | (q3 & 15) << 4);
      block.high[half * 32 + l] = static_cast<uint8_t>(q0 >> 4 | q1 >> 4 << 2 | q2 >> 4 << 4 | q3 >> 4 << 6);
    }
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_q6_k = {.format = k_q6_k, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
