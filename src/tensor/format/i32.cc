// I32: signed integers of 32 bits, little-endian. One element per block.
#include "tensor/block.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 1;
  int32_t value;
};

void dequantize_block(const Block& block, BlockElements<Block> out) { out[0] = static_cast<float>(block.value); }

}  // namespace

extern const Format k_i32 = block_format<Block, dequantize_block>("i32", 26);

}  // namespace zinc
