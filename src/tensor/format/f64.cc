// F64: IEEE-754 binary64, little-endian, rounded to float. One element a block.
#include "tensor/block.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 1;
  double value;
};

void decode_block(const Block& block, Decoded<Block> out) { out[0] = static_cast<float>(block.value); }

}  // namespace

extern const Format k_f64 = block_format<Block, decode_block>("f64", 28);

}  // namespace zinc
