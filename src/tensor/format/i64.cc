// I64: signed integers of 64 bits, little-endian. One element a block.
#include "tensor/block.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 1;
  int64_t value;
};

void decode_block(const Block& block, Decoded<Block> out) { out[0] = static_cast<float>(block.value); }

}  // namespace

extern const Format k_i64 = block_format<Block, decode_block>("i64", 27);

}  // namespace zinc
