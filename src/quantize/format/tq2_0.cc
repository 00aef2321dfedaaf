#include "quantize/block_quantizer.h"
#include "quantize/ternary_search.h"

namespace zinc {

extern const Format k_tq2_0;

namespace {

struct Block {  // tensor/format/tq2_0.cc
  static constexpr size_t kElems = 256;
  uint8_t q[64];
  uint16_t d;
};

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  const TernaryBlock ternary = search_ternary(x, importance, begin);
  Block block{};
  block.d = ternary.d;
  for (size_t half = 0; half < 2; ++half) {
    const uint8_t* q = ternary.q.data() + half * 128;
    for (size_t m = 0; m < 32; ++m) {
      block.q[half * 32 + m] = static_cast<uint8_t>(q[m] | q[m + 32] << 2 | q[m + 64] << 4 | q[m + 96] << 6);
    }
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_tq2_0 = {.format = k_tq2_0, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
