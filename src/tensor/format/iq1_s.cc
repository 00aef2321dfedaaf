// IQ1_S: 256 elements in 8 groups of 32, d * scale * (g + delta): g are four points of an 8-dimensional grid of
// {-1, 0, 1}, delta is 1/8 or -1/8.
#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint16_t d;         // f16
  uint8_t codes[32];  // low byte of the grid index
  uint16_t high[8];   // per group: four times 3 bits of grid index, 3 bits of scale, sign of the delta
};
static_assert(sizeof(Block) == 50);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t i = 0; i < 32; ++i) {
    const uint32_t high = block.high[i / 4];
    const float scale = d * static_cast<float>(2 * (high >> 12 & 7) + 1);
    const size_t index = block.codes[i] | (high >> i % 4 * 3 & 7) << 8;
    write_with_delta(kIq1Grid[index], (high & 0x8000) != 0, scale, out.data() + i * 8);
  }
}

}  // namespace

extern const Format k_iq1_s = block_format<Block, dequantize_block>("iq1_s", 19);

}  // namespace zinc
