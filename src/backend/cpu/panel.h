// Matrices as the CPU kernels read them: panels of 16 rows, interleaved so that each of 16 lanes works on one row and
// no lane ever needs another's sum. A panel is a run of blocks along the row; what a block holds is its format's matter
// (format/*.cc). One column or many, every output is computed by the same operations in the same order: results do not
// depend on how columns are batched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace zinc::cpu {

inline constexpr int kPanelRows = 16;
inline constexpr int kMaxTileColumns = 8;

// How the other operand is given: floats, or 8-bit blocks with one scale each.
enum class ColumnKind : uint8_t { f32, q8_blocks_of_32, q8_blocks_of_256 };

// One column (one token's activations). For the 8-bit kinds, sums of the quants are kept for formats with an offset.
struct Column {
  const float* f32 = nullptr;
  const int8_t* q = nullptr;
  const float* scale = nullptr;    // per block
  const int16_t* sum16 = nullptr;  // of each 16 quants
  const int16_t* sum32 = nullptr;  // of each 32 quants
};

// out[n][0..15] = the panel's 16 rows times column n, over n_blocks blocks.
using PanelKernel = void (*)(const uint8_t* panel, size_t n_blocks, const Column* columns, float* const* out);

struct PanelFormat {
  std::string_view format;  // name of the tensor/format it packs
  ColumnKind column_kind;
  uint16_t block_elems;
  uint16_t panel_block_bytes;  // of 16 rows
  // Interleaves one block of 16 rows. row_blocks[r] is row r's block; rows past the matrix are blocks of zeros.
  void (*pack)(const std::byte* const* row_blocks, uint8_t* out);
  PanelKernel kernels[kMaxTileColumns];  // for 1, 2, ... columns; nullptr past the instruction set's tile
};

}  // namespace zinc::cpu
