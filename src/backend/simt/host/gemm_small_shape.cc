#include "backend/simt/host/gemm_small_shape.h"

#include <algorithm>
#include <array>

namespace zinc::simt::host {
namespace {

struct Tile {
  int n_columns, n_warps, n_column_warps, n_accumulators;
};
// Narrow ones first. 12 warps have 80 registers each, which suffice for eight columns; 8 warps have 128, which suffice
// for 16 columns per warp. The accumulators take 8 to 32 KB.
constexpr std::array<Tile, 5> kTiles = {{{8, 12, 1, 8}, {8, 8, 1, 8}, {16, 8, 1, 8}, {32, 8, 2, 8}, {64, 8, 4, 4}}};
static_assert(kTiles.front().n_columns == kMinGemmSmallColumns && kTiles.back().n_columns == kMaxGemmSmallTokens);

constexpr int kMinStages = 2, kMaxStages = 16;  // per team

simt::GemmSmallShape shape_of(const Tile& tile, bool has_experts, int segment_bytes) {
  simt::GemmSmallShape shape{.n_columns = tile.n_columns,
                             .has_experts = has_experts ? 1 : 0,
                             .n_warps = tile.n_warps,
                             .n_column_warps = tile.n_column_warps,
                             .n_accumulators = tile.n_accumulators,
                             .n_stages = kMaxStages};
  while (simt::gemm_small_smem(shape, segment_bytes).n_bytes > kGemmSmallSharedBytes) --shape.n_stages;
  return shape;
}

}  // namespace

simt::GemmSmallShape gemm_small_shape(int n_columns, bool has_experts, int segment_bytes) {
  for (const Tile& tile : kTiles) {
    const simt::GemmSmallShape shape = shape_of(tile, has_experts, segment_bytes);
    if (tile.n_columns >= n_columns && shape.n_stages >= kMinStages) return shape;
  }
  return shape_of(kTiles.back(), has_experts, segment_bytes);
}

int gemm_small_expert_columns(int64_t n_pairs, int64_t n_experts) {
  const auto found =
      std::ranges::find_if(kTiles, [&](const Tile& tile) { return tile.n_columns * n_experts >= n_pairs; });
  return (found == kTiles.end() ? kTiles.back() : *found).n_columns;
}

}  // namespace zinc::simt::host
