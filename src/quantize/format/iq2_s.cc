#include "quantize/block_quantizer.h"
#include "quantize/grid_block.h"
#include "tensor/iq_grids.h"

namespace zinc {

extern const Format k_iq2_s;

namespace {

struct Block {  // tensor/format/iq2_s.cc
  static constexpr size_t kElems = 256;
  uint16_t d;
  uint8_t codes[32];
  uint8_t signs[32];
  uint8_t high[8];
  uint8_t scales[8];
};

struct Shape {
  using Index = GridIndex<8, 3>;
  static constexpr GridSigns kSigns = GridSigns::kFree;
  static constexpr size_t kSubBlocks = 16;
  static constexpr size_t kScaleCodes = 16;
  static constexpr float kUnit = 0.125F;
  static constexpr GridDelta kDelta = GridDelta::kNone;
  static constexpr float kTypicalCoordinate = 25;
  static constexpr float kScales[] = {0.85F, 1.0F, 1.2F};
  static constexpr float kSigma2Factor = 2;
};

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  static const Shape::Index index(kIq2SGrid);
  const auto found = GridBlock<Shape>::quantize(index, x, importance, begin);
  Block block{};
  block.d = found.d;
  for (size_t i = 0; i < 32; ++i) {
    block.codes[i] = static_cast<uint8_t>(found.code[i]);
    block.high[i / 4] = static_cast<uint8_t>(block.high[i / 4] | (found.code[i] >> 8) << i % 4 * 2);
    block.signs[i] = found.signs[i];
  }
  for (size_t b = 0; b < 8; ++b) {
    block.scales[b] = static_cast<uint8_t>(found.scale[2 * b] | found.scale[2 * b + 1] << 4);
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_iq2_s = {.format = k_iq2_s, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
