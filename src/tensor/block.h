// Shared by block formats: a quant block is a plain struct with `kElems`, its number of elements. Blocks are unaligned
// in the file, so each is copied out and dequantized by a function of one block; the loop over blocks is here.
#pragma once

#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/check.h"
#include "tensor/format.h"

namespace zinc {

template <class Block>
using BlockElements = std::span<float, Block::kElems>;

template <class Block, void (*dequantize_block)(const Block&, BlockElements<Block>)>
void dequantize_blocks(std::span<const std::byte> blocks, std::span<float> out) {
  static_assert(std::is_trivially_copyable_v<Block>);
  const size_t n_blocks = blocks.size() / sizeof(Block);
  ZINC_CHECK(n_blocks * sizeof(Block) == blocks.size() && n_blocks * Block::kElems == out.size());
  for (size_t i = 0; i < n_blocks; ++i) {
    Block block;
    std::memcpy(&block, blocks.data() + i * sizeof(Block), sizeof(Block));
    dequantize_block(block, BlockElements<Block>(out.data() + i * Block::kElems, Block::kElems));
  }
}

template <class Block, void (*quantize_block)(std::span<const float, Block::kElems>, Block&)>
void quantize_blocks(std::span<const float> in, std::span<std::byte> blocks) {
  const size_t n_blocks = blocks.size() / sizeof(Block);
  ZINC_CHECK(n_blocks * sizeof(Block) == blocks.size() && n_blocks * Block::kElems == in.size());
  for (size_t i = 0; i < n_blocks; ++i) {
    Block block;
    quantize_block(std::span<const float, Block::kElems>(in.data() + i * Block::kElems, Block::kElems), block);
    std::memcpy(blocks.data() + i * sizeof(Block), &block, sizeof(Block));
  }
}

// The record of a format that dequantizes block by block.
template <class Block, void (*dequantize_block)(const Block&, BlockElements<Block>)>
constexpr Format block_format(std::string_view name, uint32_t gguf_id) {
  return {.name = name,
          .gguf_id = gguf_id,
          .block_elems = Block::kElems,
          .block_bytes = sizeof(Block),
          .dequantize = dequantize_blocks<Block, dequantize_block>};
}

}  // namespace zinc
