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
  std::array<uint8_t, 256> q;
  for (size_t i = 0; i < 256; ++i) q[i] = static_cast<uint8_t>(groups.q[i] + 4);
  for (size_t half = 0; half < 2; ++half) {
    const uint8_t* from = q.data() + half * 128;
    for (size_t l = 0; l < 32; ++l) {
      const int q0 = from[l], q1 = from[l + 32], q2 = from[l + 64], q3 = from[l + 96];
      block.q[half * 32 + l] = static_cast<uint8_t>((q0 & 3) | (q1 & 3) << 2 | (q2 & 3) << 4 | (q3 & 3) << 6);
      const int high = q0 >> 2 | q1 >> 2 << 1 | q2 >> 2 << 2 | q3 >> 2 << 3;
      block.high[l] = static_cast<uint8_t>(block.high[l] | high << 4 * half);
    }
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_q3_k = {.format = k_q3_k, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
