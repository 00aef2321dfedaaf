// I8: signed integers of 8 bits, little-endian. One element per block.
#include "tensor/block.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 1;
  int8_t value;
};

void dequantize_block(const Block& block, BlockElements<Block> out) { out[0] = static_cast<float>(block.value); }

}  // namespace

extern const Format k_i8 = block_format<Block, dequantize_block>("i8", 24);

}  // namespace zinc
