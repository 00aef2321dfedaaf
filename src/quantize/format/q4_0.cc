#include "quantize/legacy_search.h"
#include "quantize/quantizer.h"

namespace zinc {

extern const Format k_q4_0;

namespace {

struct Block {  // tensor/format/q4_0.cc
  uint16_t d;
  uint8_t q[16];
};

Block pack(const LegacyBlock& from) {
  Block block{};
  block.d = from.d;
  for (size_t j = 0; j < 16; ++j) block.q[j] = static_cast<uint8_t>(from.q[j] | from.q[j + 16] << 4);
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_q4_0 = {
    .format = k_q4_0, .quantize = quantize_legacy<Block, legacy_symmetric<8>, legacy_weighted_symmetric<8>, pack>};

}  // namespace zinc
