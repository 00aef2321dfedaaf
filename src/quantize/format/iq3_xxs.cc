#include "quantize/block_quantizer.h"
#include "quantize/grid_block.h"
#include "tensor/iq_grids.h"

namespace zinc {

extern const Format k_iq3_xxs;

namespace {

struct Block {  // tensor/format/iq3_xxs.cc
  static constexpr size_t kElems = 256;
  uint16_t d;
  uint8_t codes[64];
  uint8_t signs_scale[32];
};

struct Shape {
  using Index = GridIndex<4, 8>;
  static constexpr GridSigns kSigns = GridSigns::kParity;
  static constexpr size_t kSubBlocks = 8;
  static constexpr size_t kScaleCodes = 16;
  static constexpr float kUnit = 0.25F;
  static constexpr GridDelta kDelta = GridDelta::kNone;
  static constexpr float kTypicalCoordinate = 32;
  static constexpr float kScales[] = {0.85F, 1.0F, 1.2F};
  static constexpr float kSigma2Factor = 2;
};

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  static const Shape::Index index(kIq3XxsGrid);
  const auto found = GridBlock<Shape>::quantize(index, x, importance, begin);
  Block block{};
  block.d = found.d;
  for (size_t b = 0; b < 8; ++b) {
    uint32_t packed = uint32_t{found.scale[b]} << 28;
    for (size_t l = 0; l < 8; ++l) block.codes[b * 8 + l] = static_cast<uint8_t>(found.code[b * 8 + l]);
    for (size_t l = 0; l < 4; ++l) packed |= (found.signs[b * 4 + l] & 127u) << 7 * l;
    std::memcpy(block.signs_scale + b * 4, &packed, sizeof(packed));
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_iq3_xxs = {.format = k_iq3_xxs, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
