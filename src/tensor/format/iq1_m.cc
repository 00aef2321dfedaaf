// IQ1_M: 256 elements in 16 groups of 16, d * scale * (g + delta) as in IQ1_S, with a scale per two grid points
// and a delta per grid point.
#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint8_t codes[32];   // low byte of the grid index
  uint8_t high[16];    // a nibble per grid point: 3 bits of index, sign of the delta
  uint16_t scales[4];  // four times 3 bits of scale; the top nibbles together are d (f16)
};
static_assert(sizeof(Block) == 56);

float block_scale(const Block& block) {
  uint32_t bits = 0;
  for (size_t i = 0; i < 4; ++i) bits |= (uint32_t{block.scales[i]} >> 12) << 4 * i;
  return half_to_float(static_cast<uint16_t>(bits));
}

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = block_scale(block);
  for (size_t i = 0; i < 32; ++i) {
    const uint32_t nibble = block.high[i / 2] >> i % 2 * 4 & 15u;
    const float scale = d * static_cast<float>(2 * (block.scales[i / 8] >> i % 8 / 2 * 3 & 7) + 1);
    write_with_delta(kIq1Grid[block.codes[i] | (nibble & 7) << 8], (nibble & 8) != 0, scale, out.data() + i * 8);
  }
}

}  // namespace

extern const Format k_iq1_m = block_format<Block, dequantize_block>("iq1_m", 29);

}  // namespace zinc
