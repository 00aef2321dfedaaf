// The loop over the blocks of a row, for formats whose blocks are quantized one by one.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/check.h"
#include "quantize/quantizer.h"
#include "quantize/row_weights.h"

namespace zinc {

// quantize_block(x, importance, begin): the block of the elements row[begin ...], cut at +-kLimit.
template <class Block, Block (*quantize_block)(std::span<const float, Block::kElems>, const RowWeights&, size_t),
          const float& kLimit = kLargestWeight>
void quantize_row(std::span<const float> row, std::span<const float> importance, std::span<std::byte> blocks) {
  ZINC_CHECK(row.size() / Block::kElems * sizeof(Block) == blocks.size() && row.size() % Block::kElems == 0);
  ZINC_CHECK(importance.empty() || importance.size() == row.size());
  const RowWeights weights(importance);
  for (size_t begin = 0; begin < row.size(); begin += Block::kElems) {
    std::array<float, Block::kElems> x;
    for (size_t i = 0; i < Block::kElems; ++i) x[i] = std::min(kLimit, std::max(-kLimit, row[begin + i]));
    const Block block = quantize_block(x, weights, begin);
    std::memcpy(blocks.data() + begin / Block::kElems * sizeof(Block), &block, sizeof(Block));
  }
}

}  // namespace zinc
