#include "quantize/block_quantizer.h"
#include "quantize/grid_block.h"
#include "tensor/iq_grids.h"

namespace zinc {

extern const Format k_iq1_s;

namespace {

struct Block {  // tensor/format/iq1_s.cc
  static constexpr size_t kElems = 256;
  uint16_t d;
  uint8_t codes[32];
  uint16_t high[8];
};

struct Shape {
  using Index = GridIndex<8, 3>;
  static constexpr GridSigns kSigns = GridSigns::kInGrid;
  static constexpr size_t kSubBlocks = 8;
  static constexpr size_t kScaleCodes = 8;
  static constexpr float kUnit = 1;
  static constexpr GridDelta kDelta = GridDelta::kPerSubBlock;
  static constexpr float kTypicalCoordinate = 1;
  static constexpr float kScales[] = {0.9F, 1.1F};
  static constexpr float kSigma2Factor = 2;
};

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  static const Shape::Index index(kIq1Grid);
  const auto found = GridBlock<Shape>::quantize(index, x, importance, begin);
  Block block{};
  block.d = found.d;
  for (size_t b = 0; b < 8; ++b) {
    uint32_t high = uint32_t{found.scale[b]} << 12 | uint32_t{found.has_negative_delta[b * 4]} << 15;
    for (size_t l = 0; l < 4; ++l) {
      block.codes[b * 4 + l] = static_cast<uint8_t>(found.code[b * 4 + l]);
      high |= uint32_t{found.code[b * 4 + l]} >> 8 << 3 * l;
    }
    block.high[b] = static_cast<uint16_t>(high);
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_iq1_s = {
    .format = k_iq1_s, .needs_importance = true, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
