#include "quantize/block_quantizer.h"
#include "quantize/grid_block.h"
#include "tensor/iq_grids.h"

namespace zinc {

extern const Format k_iq3_s;

namespace {

struct Block {  // tensor/format/iq3_s.cc
  static constexpr size_t kElems = 256;
  uint16_t d;
  uint8_t codes[64];
  uint8_t high[8];
  uint8_t signs[32];
  uint8_t scales[4];
};

struct Shape {
  using Index = GridIndex<4, 8>;
  static constexpr GridSigns kSigns = GridSigns::kFree;
  static constexpr size_t kSubBlocks = 8;
  static constexpr size_t kScaleCodes = 16;
  static constexpr float kUnit = 1;
  static constexpr GridDelta kDelta = GridDelta::kNone;
  static constexpr float kTypicalCoordinate = 8;
  static constexpr float kScales[] = {0.85F, 1.0F, 1.2F};
  static constexpr float kSigma2Factor = 2;
};

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  static const Shape::Index index(kIq3SGrid);
  const auto found = GridBlock<Shape>::quantize(index, x, importance, begin);
  Block block{};
  block.d = found.d;
  for (size_t i = 0; i < 64; ++i) {
    block.codes[i] = static_cast<uint8_t>(found.code[i]);
    block.high[i / 8] = static_cast<uint8_t>(block.high[i / 8] | (found.code[i] >> 8) << i % 8);
  }
  std::ranges::copy(found.signs, block.signs);
  for (size_t b = 0; b < 4; ++b) {
    block.scales[b] = static_cast<uint8_t>(found.scale[2 * b] | found.scale[2 * b + 1] << 4);
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_iq3_s = {.format = k_iq3_s, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
