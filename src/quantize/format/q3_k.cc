#include "quantize/block_quantizer.h"
#include "quantize/symmetric_groups.h"

namespace zinc {

extern const Format k_q3_k;

namespace {

struct Block {  // tensor/format/q3_k.cc
  static constexpr size_t kElems = 256;
  uint8_t high[32];
  uint8_t q[64];
  uint8_t scales[12];
  uint16_t d;
};

void pack_scales(const std::array<int8_t, 16>& scales, uint8_t (&packed)[12]) {
  for (size_t g = 0; g < 16; ++g) {
    const int scale = scales[g] + 32;
    uint8_t& low = packed[g % 8];
    uint8_t& top = packed[8 + g % 4];
    low = static_cast<uint8_t>(low | (scale & 15) << g / 8 * 4);
    top = static_cast<uint8_t>(top | scale >> 4 << g / 4 * 2);
  }
}

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  const auto groups = SymmetricGroups<4, 32>::quantize(x, importance, begin);
  Block block{};
  block.d = groups.d;
  pack_scales(groups.scale, block.scales);
  for (size_t i = 0; i < 256; ++i) {
    const int q = groups.q[i] + 4;
    uint8_t& low = block.q[i / 128 * 32 + i % 32];
    uint8_t& high = block.high[i % 32];
    low = static_cast<uint8_t>(low | (q & 3) << i % 128 / 32 * 2);
    high = static_cast<uint8_t>(high | q >> 2 << i / 32);
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_q3_k = {.format = k_q3_k, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
