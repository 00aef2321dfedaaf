#include "backend/simt/host/gemm_small_shape.h"

#include <algorithm>
#include <array>

#include "base/ceil_div.h"

namespace zinc::simt::host {
namespace {

struct Tile {
  int n_columns, n_team_warps, n_accumulators;
};
// Narrow ones first: at most 16 columns per warp, whose fragments fit its registers. The accumulators take 8 to 32 KB.
constexpr std::array<Tile, 4> kTiles = {{{8, 1, 8}, {16, 1, 4}, {32, 2, 4}, {64, 4, 4}}};
static_assert(kTiles.front().n_columns == kMinGemmSmallColumns);

constexpr int kMaxStages = 16;  // per team

// As many teams as have a stage each: their number hides latencies better than more stages do.
simt::GemmSmallShape shape_of(const Tile& tile, bool has_experts, int segment_bytes, bool has_bulk_copies) {
  simt::GemmSmallShape shape{.n_columns = tile.n_columns,
                             .has_experts = has_experts ? 1 : 0,
                             .n_warps = 16,
                             .n_team_warps = tile.n_team_warps,
                             .n_accumulators = tile.n_accumulators,
                             .n_stages = 1,
                             .has_bulk_copies = has_bulk_copies ? 1 : 0};
  const auto fits = [&] { return simt::gemm_small_smem(shape, segment_bytes).n_bytes <= kGemmSmallSharedBytes; };
  while (!fits()) shape.n_warps -= tile.n_team_warps;
  while (fits() && shape.n_stages < kMaxStages) ++shape.n_stages;
  if (!fits()) --shape.n_stages;
  return shape;
}

}  // namespace

simt::GemmSmallShape gemm_small_shape(int n_columns, bool has_experts, int segment_bytes, bool has_bulk_copies) {
  const auto found = std::ranges::find_if(kTiles, [&](const Tile& tile) { return tile.n_columns >= n_columns; });
  return shape_of(found == kTiles.end() ? kTiles.back() : *found, has_experts, segment_bytes, has_bulk_copies);
}

// Tiles as wide as the step, but narrower if more than half of the SMs would have none.
simt::GemmSmallWgmmaShape gemm_small_wgmma_shape(int64_t n_row_tiles, int n_columns, int n_sms, int segment_bytes) {
  constexpr int kMinColumns = 16, kMaxColumns = 64, kWgmmaStages = 12;
  simt::GemmSmallWgmmaShape shape{
      .n_columns = kMinColumns, .n_row_groups = 1, .n_k_splits = 3, .n_stages = kWgmmaStages};
  while (shape.n_columns < kMaxColumns && shape.n_columns < n_columns) shape.n_columns *= 2;
  while (shape.n_columns > kMinColumns && 2 * n_row_tiles * ceil_div(n_columns, shape.n_columns) <= n_sms) {
    shape.n_columns /= 2;
  }
  if (n_columns > kMaxColumns && n_row_tiles * ceil_div(n_columns, shape.n_columns) >= 3 * n_sms) {
    shape.n_row_groups = 2;  // they share the activations, and their totals stay in registers
    shape.n_k_splits = 1;
  }
  while (simt::gemm_small_wgmma_smem_bytes(shape, segment_bytes) > kGemmSmallWgmmaSharedBytes) --shape.n_stages;
  return shape;
}

int gemm_small_expert_columns(int64_t n_pairs, int64_t n_experts) {
  const auto found =
      std::ranges::find_if(kTiles, [&](const Tile& tile) { return 2 * tile.n_columns * n_experts >= 3 * n_pairs; });
  return (found == kTiles.end() ? kTiles.back() : *found).n_columns;
}

}  // namespace zinc::simt::host
