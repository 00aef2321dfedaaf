// IQ4_XS: 256 elements in 8 groups of 32, d * (scale - 32) * level[q] with 6-bit scales and the levels of IQ4_NL.
#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint16_t d;             // f16
  uint16_t scales_high;   // two bits per group
  uint8_t scales_low[4];  // four bits per group
  uint8_t q[128];         // 16 bytes per group: low nibbles hold elements 0-15, high nibbles 16-31
};
static_assert(sizeof(Block) == 136);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t group = 0; group < 8; ++group) {
    const int low = block.scales_low[group / 2] >> group % 2 * 4 & 15;
    const int high = block.scales_high >> 2 * group & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const uint8_t* q = block.q + group * 16;
    float* to = out.data() + group * 32;
    for (size_t j = 0; j < 16; ++j) to[j] = scale * static_cast<float>(kIq4Levels[q[j] & 15]);
    for (size_t j = 0; j < 16; ++j) to[j + 16] = scale * static_cast<float>(kIq4Levels[q[j] >> 4]);
  }
}

}  // namespace

extern const Format k_iq4_xs = block_format<Block, dequantize_block>("iq4_xs", 23);

}  // namespace zinc
