// IQ3_S: 256 elements in 8 groups of 32, each eight points of a 4-dimensional grid with free signs and a 4-bit scale.
#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint16_t d;         // f16
  uint8_t codes[64];  // low byte of the grid index
  uint8_t high[8];    // ninth bit of eight indices
  uint8_t signs[32];
  uint8_t scales[4];  // low nibble: even group, high nibble: odd group
};
static_assert(sizeof(Block) == 110);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t i = 0; i < 64; ++i) {
    const int nibble = block.scales[i / 16] >> i % 16 / 8 * 4 & 15;
    const float scale = d * static_cast<float>(1 + 2 * nibble);
    const size_t index = block.codes[i] | (block.high[i / 8] >> i % 8 & 1u) << 8;
    const uint8_t signs = static_cast<uint8_t>(block.signs[i / 2] >> i % 2 * 4);
    write_signed(kIq3SGrid[index], signs, scale, out.data() + i * 4);
  }
}

}  // namespace

extern const Format k_iq3_s = block_format<Block, dequantize_block>("iq3_s", 21);

}  // namespace zinc
