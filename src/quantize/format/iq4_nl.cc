#include "quantize/block_quantizer.h"
#include "quantize/level_search.h"
#include "tensor/half.h"

namespace zinc {

extern const Format k_iq4_nl;

namespace {

struct Block {  // tensor/format/iq4_nl.cc
  static constexpr size_t kElems = 32;
  uint16_t d;
  uint8_t q[16];
};

Block quantize_block(std::span<const float, 32> x, const RowWeights& importance, size_t begin) {
  static const NearestLevel nearest;
  std::array<float, 32> w;
  importance.fill<32>(x, begin, 2, w);
  LevelGroup group;
  group.fill(x.data(), w.data());
  Block block{};
  block.d = float_to_half(std::clamp(group.best_scale(nearest), -65504.0F, 65504.0F));
  group.take_codes(nearest, half_to_float(block.d), block.q);
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_iq4_nl = {.format = k_iq4_nl, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
