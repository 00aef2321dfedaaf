// F64: IEEE-754 binary64, little-endian, rounded to float. One element per block.
#include "tensor/block.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 1;
  double value;
};

void dequantize_block(const Block& block, BlockElements<Block> out) { out[0] = static_cast<float>(block.value); }

}  // namespace

extern const Format k_f64 = block_format<Block, dequantize_block>("f64", 28);

}  // namespace zinc
