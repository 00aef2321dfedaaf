// I16: signed integers of 16 bits, little-endian. One element per block.
#include "tensor/block.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 1;
  int16_t value;
};

void dequantize_block(const Block& block, BlockElements<Block> out) { out[0] = static_cast<float>(block.value); }

}  // namespace

extern const Format k_i16 = block_format<Block, dequantize_block>("i16", 25);

}  // namespace zinc
