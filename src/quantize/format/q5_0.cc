#include "quantize/legacy_search.h"
#include "quantize/quantizer.h"

namespace zinc {

extern const Format k_q5_0;

namespace {

struct Block {  // tensor/format/q5_0.cc
  uint16_t d;
  uint8_t high[4];
  uint8_t q[16];
};

Block pack(const LegacyBlock& from) {
  Block block{};
  block.d = from.d;
  pack_fifth_bits(from, block.high, block.q);
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_q5_0 = {
    .format = k_q5_0, .quantize = quantize_legacy<Block, legacy_symmetric<16>, legacy_weighted_symmetric<16>, pack>};

}  // namespace zinc
