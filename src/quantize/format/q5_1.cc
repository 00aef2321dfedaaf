#include "quantize/legacy_search.h"
#include "quantize/quantizer.h"

namespace zinc {

extern const Format k_q5_1;

namespace {

struct Block {  // tensor/format/q5_1.cc
  uint16_t d;
  uint16_t m;
  uint8_t high[4];
  uint8_t q[16];
};

Block pack(const LegacyBlock& from) {
  Block block{};
  block.d = from.d;
  block.m = from.m;
  pack_fifth_bits(from, block.high, block.q);
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_q5_1 = {
    .format = k_q5_1, .quantize = quantize_legacy<Block, legacy_affine<31>, LegacyWeightedAffine<31>::quantize, pack>};

}  // namespace zinc
