// Weight matrices packed for the CPU kernels: panels of 16 interleaved rows, one row per SIMD lane, so that no sum
// crosses lanes. A panel is a sequence of blocks along K; their layout is defined by the format (format/*.cc). Every
// output is computed by the same operations in the same order for any number of tokens, so results do not depend on
// batching.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace zinc::cpu {

inline constexpr int kPanelRows = 16;
inline constexpr int kMaxTileTokens = 8;

// Format of the activations: f32, or 8-bit blocks with one scale each.
enum class ActivationFormat : uint8_t { f32, q8_blocks_of_32, q8_blocks_of_256 };

// The input activations of one token. The 8-bit formats include sums of the quants, for weight formats with an offset.
struct TokenActivation {
  const float* f32 = nullptr;
  const int8_t* q = nullptr;
  const float* scale = nullptr;    // per block
  const int16_t* sum16 = nullptr;  // of each 16 quants
  const int16_t* sum32 = nullptr;  // of each 32 quants
};

// out[n][0..15] = the panel's 16 rows times the activations of token n, over n_blocks blocks.
using PanelKernel = void (*)(const uint8_t* panel, size_t n_blocks, const TokenActivation* activations,
                             float* const* out);

struct PanelFormat {
  std::string_view format;  // name of the tensor/format it packs
  ActivationFormat activation_format;
  uint16_t block_elems;
  uint16_t panel_block_bytes;  // of 16 rows
  // Interleaves one block of 16 rows. row_blocks[r] is row r's block; rows past the matrix are blocks of zeros.
  void (*pack)(const std::byte* const* row_blocks, uint8_t* out);
  PanelKernel kernels[kMaxTileTokens];  // for 1, 2, ... tokens; nullptr past the instruction set's tile
};

}  // namespace zinc::cpu
