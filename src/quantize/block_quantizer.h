// The loop over the blocks of a row, for formats whose blocks are quantized one by one.
#pragma once

#include <cstring>
#include <span>

#include "base/check.h"
#include "quantize/quantizer.h"
#include "quantize/row_weights.h"

namespace zinc {

// quantize_block(x, importance, begin): the block of the elements row[begin ...].
template <class Block, Block (*quantize_block)(std::span<const float, Block::kElems>, const RowWeights&, size_t)>
void quantize_row(std::span<const float> row, std::span<const float> importance, std::span<std::byte> blocks) {
  ZINC_CHECK(row.size() / Block::kElems * sizeof(Block) == blocks.size() && row.size() % Block::kElems == 0);
  ZINC_CHECK(importance.empty() || importance.size() == row.size());
  const RowWeights weights(importance);
  for (size_t begin = 0; begin < row.size(); begin += Block::kElems) {
    const Block block = quantize_block(row.subspan(begin).first<Block::kElems>(), weights, begin);
    std::memcpy(blocks.data() + begin / Block::kElems * sizeof(Block), &block, sizeof(Block));
  }
}

}  // namespace zinc
