#include "quantize/block_quantizer.h"
#include "quantize/ternary_search.h"

namespace zinc {

extern const Format k_tq1_0;

namespace {

struct Block {  // tensor/format/tq1_0.cc
  static constexpr size_t kElems = 256;
  uint8_t five[48];
  uint8_t four[4];
  uint16_t d;
};

// Byte m has the digits q[m], q[m + n_bytes], ...: the first is the highest of five. The number n is stored as the
// least byte whose multiples by 3 carry out its digits: ceil(n * 256 / 243).
void pack_digits(const uint8_t* q, size_t n_bytes, size_t n_digits, uint8_t* bytes) {
  for (size_t m = 0; m < n_bytes; ++m) {
    uint32_t number = 0;
    for (size_t n = 0; n < 5; ++n) number = number * 3 + (n < n_digits ? q[m + n * n_bytes] : 0);
    bytes[m] = static_cast<uint8_t>((number * 256 + 242) / 243);
  }
}

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  const TernaryBlock ternary = search_ternary(x, importance, begin);
  Block block{};
  block.d = ternary.d;
  pack_digits(ternary.q.data(), 32, 5, block.five);
  pack_digits(ternary.q.data() + 160, 16, 5, block.five + 32);
  pack_digits(ternary.q.data() + 240, 4, 4, block.four);
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_tq1_0 = {.format = k_tq1_0, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
