#include "quantize/block_quantizer.h"
#include "quantize/grid_block.h"
#include "tensor/iq_grids.h"

namespace zinc {

extern const Format k_iq2_xs;

namespace {

struct Block {  // tensor/format/iq2_xs.cc
  static constexpr size_t kElems = 256;
  uint16_t d;
  uint16_t codes[32];
  uint8_t scales[8];
};

struct Shape {
  using Index = GridIndex<8, 3>;
  static constexpr GridSigns kSigns = GridSigns::kParity;
  static constexpr size_t kSubBlocks = 16;
  static constexpr size_t kScaleCodes = 16;
  static constexpr float kUnit = 0.125F;
  static constexpr GridDelta kDelta = GridDelta::kNone;
  static constexpr float kTypicalCoordinate = 25;
  static constexpr float kScales[] = {0.85F, 1.0F, 1.2F};
  static constexpr float kSigma2Factor = 1;
};

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  static const Shape::Index index(kIq2XsGrid);
  const auto found = GridBlock<Shape>::quantize(index, x, importance, begin);
  Block block{};
  block.d = found.d;
  for (size_t i = 0; i < 32; ++i) {
    block.codes[i] = static_cast<uint16_t>(found.code[i] | (found.signs[i] & 127u) << 9);
  }
  for (size_t b = 0; b < 8; ++b) {
    block.scales[b] = static_cast<uint8_t>(found.scale[2 * b] | found.scale[2 * b + 1] << 4);
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_iq2_xs = {
    .format = k_iq2_xs, .needs_importance = true, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
