#include "quantize/block_quantizer.h"
#include "quantize/grid_block.h"
#include "tensor/iq_grids.h"

namespace zinc {

extern const Format k_iq1_m;

namespace {

struct Block {  // tensor/format/iq1_m.cc
  static constexpr size_t kElems = 256;
  uint8_t codes[32];
  uint8_t high[16];
  uint16_t scales[4];
};

struct Shape {
  using Index = GridIndex<8, 3>;
  static constexpr GridSigns kSigns = GridSigns::kInGrid;
  static constexpr size_t kSubBlocks = 16;
  static constexpr size_t kScaleCodes = 8;
  static constexpr float kUnit = 1;
  static constexpr GridDelta kDelta = GridDelta::kPerGroup;
  static constexpr float kTypicalCoordinate = 1;
  static constexpr float kScales[] = {0.9F, 1.1F};
  static constexpr float kSigma2Factor = 2;
};

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  static const Shape::Index index(kIq1Grid);
  const auto found = GridBlock<Shape>::quantize(index, x, importance, begin);
  Block block{};
  for (size_t i = 0; i < 32; ++i) {
    const uint32_t nibble = uint32_t{found.code[i]} >> 8 | uint32_t{found.has_negative_delta[i]} << 3;
    block.codes[i] = static_cast<uint8_t>(found.code[i]);
    block.high[i / 2] = static_cast<uint8_t>(block.high[i / 2] | nibble << i % 2 * 4);
  }
  for (size_t i = 0; i < 4; ++i) {
    uint32_t scales = (uint32_t{found.d} >> 4 * i & 15) << 12;
    for (size_t l = 0; l < 4; ++l) scales |= uint32_t{found.scale[i * 4 + l]} << 3 * l;
    block.scales[i] = static_cast<uint16_t>(scales);
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_iq1_m = {
    .format = k_iq1_m, .needs_importance = true, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
