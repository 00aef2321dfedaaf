#include "backend/simt/host/lowering.h"

#include <algorithm>
#include <array>

namespace zinc::simt::host {
namespace {

size_t wgmma_shared_bytes(const PanelFormat& format) {
  const int kind = format.q8_block == simt::kSegmentElems ? simt::kWgmmaIntegerScales
                   : format.has_power_scales              ? simt::kWgmmaFoldedScales
                                                          : simt::kWgmmaFloatScales;
  const simt::WgmmaLayout layout = simt::wgmma_layout(format.header_bytes, format.group_bytes, kind);
  return static_cast<size_t>(simt::wgmma_shared_bytes(layout));
}

// Tiles of gemm_floats.cu.
struct FloatTile {
  const char* kernel;
  int n_columns, n_panels;
  unsigned n_threads;
};
// Wider tiles read less shared memory per product, narrower ones suit few rows and give more blocks.
constexpr std::array<FloatTile, 5> kFloatTiles = {{{"gemm_floats_8x1", 8, 1, 64},
                                                   {"gemm_floats_16x1", 16, 1, 128},
                                                   {"gemm_floats_32x1", 32, 1, 128},
                                                   {"gemm_floats_32x2", 32, 2, 128},
                                                   {"gemm_floats_64x2", 64, 2, 128}}};
constexpr int kMaxFloatSplits = 8;  // the largest cluster that every GPU with clusters can launch

// Stages of weights and inputs; with a cluster an mbarrier and the segments' sums of the block's own columns.
size_t float_shared_bytes(const PanelFormat& format, const FloatTile& tile, int n_splits, int n_segments) {
  const int stage = tile.n_panels * simt::kPanelRows * simt::kFloatStageGroups * format.group_bytes +
                    tile.n_columns * simt::kFloatStageElems * static_cast<int>(sizeof(float));
  const int64_t own = n_segments * ceil_div(tile.n_columns, n_splits) * tile.n_panels * simt::kPanelRows;
  return static_cast<size_t>(simt::kFloatSegmentStages * stage) +
         (n_splits > 1 ? 16 + static_cast<size_t>(own) * sizeof(float) : 0);
}

// Of gemm_small_wgmma.cu, 64 rows each.
int64_t n_wgmma_row_tiles(const simt::LinearParams& params) {
  int64_t n = 0;
  for (int part = 0; part < params.n_parts; ++part) n += ceil_div(params.parts[part].n_out, 2 * simt::kPanelRows);
  return n;
}

}  // namespace

// Matrices of one format and one input.
simt::LinearParams Lowering::linear_params(const gpu::MatmulCall& call) const {
  simt::LinearParams params{};
  gpu::Accesses accesses;
  params.act = simt::kNoAct;
  params.n_rows = n_rows(call.x);
  params.is_normed = call.norm ? 1 : 0;
  params.tiles = workspace_.expert_tiles();
  fill_matmul(call, params, accesses);
  return params;
}

Status Lowering::lower(const gpu::MatmulCall& call) {
  if (call.is_gemv) return lower_gemv(call);
  const Value x = call.first().in[0];
  const PanelFormat& format = *matrix_of(call.first()).format;
  const simt::LinearParams params = linear_params(call);
  const int rows = max_rows(x) * (call.has_experts() ? params.n_experts_used : params.vectors_per_row);
  if (runs_gemm_small_wgmma(call, params, rows)) return lower_gemm_small_wgmma(call, params, rows);
  if (format.q8_block > 0 &&
      (call.has_experts() ? runs_gemm_small_experts(rows, matrix_of(call.first()).n_experts) : runs_gemm_small())) {
    return lower_gemm_small(call, params, rows);
  }
  const bool small = is_small(x, params.vectors_per_row);
  if (!call.has_experts() && format.q8_block == 0) return lower_float_gemm(call, params, rows);
  const bool on_tensor_cores = !small && format.q8_block > 0 && device_.has_tensor_cores() &&
                               gemm_shared_bytes(format) <= static_cast<size_t>(device_.max_shared_bytes);
  return on_tensor_cores ? lower_tensor_cores(call, params, rows) : lower_simt_cores(call, params, rows);
}

Status Lowering::lower_simt_cores(const gpu::MatmulCall& call, simt::LinearParams params, int n_rows) {
  struct Tile {
    const char* kernel;
    int n_rows;
  };
  static constexpr std::array<Tile, 3> kTiles = {{{"linear_8", 8}, {"linear_4", 4}, {"linear_1", 1}}};
  const DeviceMatrix& matrix = matrix_of(call.first());
  const int max_warps = call.act ? simt::kWarps / 2 : simt::kWarps;  // with a gate, a block has panels of gate and up
  params.warps_per_panel = 1;
  while (params.warps_per_panel * 2 <= std::min(max_warps, matrix.n_segments)) params.warps_per_panel *= 2;
  const int panels = simt::kWarps / params.warps_per_panel;
  int64_t n_blocks = 0;
  for (int part = 0; part < params.n_parts; ++part) {
    const int64_t n_panels = ceil_div(params.parts[part].n_out, simt::kPanelRows);
    if (!call.act || part == 0) n_blocks += ceil_div(n_panels, call.act ? panels / 2 : panels);
  }
  for (const Tile& tile : kTiles) {
    if (params.expert_ids ? tile.n_rows > 1 : tile.n_rows / 2 >= n_rows) continue;  // use at least half of a tile
    constexpr int kQ8Floats = simt::input_segment_bytes(false) / 4;
    const bool quantizes = matrix.format->q8_block > 0;
    const int64_t floats = int64_t{panels} * matrix.n_segments * tile.n_rows * simt::kPanelRows +
                           (quantizes ? simt::kWarps * tile.n_rows * kQ8Floats : 0);
    const size_t shared = sizeof(float) * static_cast<size_t>(floats);
    if (shared > static_cast<size_t>(device_.max_shared_bytes) && tile.n_rows > 1) continue;
    return emit({"linear", std::string(matrix.format->name)}, tile.kernel, params, n_blocks,
                ceil_div(n_rows, tile.n_rows), 1, shared);
  }
  return ok_status();
}

Status Lowering::lower_tensor_cores(const gpu::MatmulCall& call, simt::LinearParams params, int n_rows) {
  int64_t n_tiles = 0;
  for (int part = 0; part < params.n_parts; ++part) n_tiles += ceil_div(params.parts[part].n_out, simt::kTileRows);
  params.n_row_tiles = static_cast<int>(n_tiles);
  const DeviceMatrix& matrix = matrix_of(call.first());
  const int tile_tokens = gemm_tile_tokens();
  const int64_t n_token_tiles =
      params.expert_ids ? workspace_.max_expert_tiles(n_rows, matrix.n_experts) : ceil_div(n_rows, tile_tokens);
  const std::string format(matrix.format->name);
  if (device_.has_wgmma()) {
    Launch launch = Launch::of(params);
    launch.threads = simt::kWgmmaThreads;
    const int64_t max_blocks =
        n_tiles * n_token_tiles * (params.expert_ids ? 1 : 2);  // the last tiles are split in two
    return add({"gemm_wgmma", format}, "gemm_wgmma", launch, std::min<int64_t>(max_blocks, device_.n_sms), 1, 1,
               wgmma_shared_bytes(*matrix.format));
  }
  return emit({"gemm", format}, "gemm", params, n_tiles, n_token_tiles, 1, gemm_shared_bytes(*matrix.format));
}

Status Lowering::lower_gemm_small(const gpu::MatmulCall& call, const simt::LinearParams& params, int n_rows) {
  ZINC_CHECK(!call.act);  // it has no gated epilogue
  const DeviceMatrix& matrix = matrix_of(call.first());
  const bool has_experts = call.has_experts();
  const int n_columns = has_experts ? expert_tile_tokens(n_rows, matrix.n_experts) : n_rows;
  const int segment_bytes = matrix.format->segment_bytes();
  const simt::GemmSmallShape shape = gemm_small_shape(n_columns, has_experts, segment_bytes, device_.has_bulk_copies());
  Launch launch = Launch::of(params);
  launch.threads = static_cast<unsigned>(32 * shape.n_warps);
  return add({"gemm_small", std::string(matrix.format->name), shape_definition("GemmSmallShape", shape)}, "gemm_small",
             launch, device_.n_sms, has_experts ? 1 : ceil_div(n_rows, shape.n_columns), 1,
             static_cast<size_t>(simt::gemm_small_smem(shape, segment_bytes).n_bytes));
}

bool Lowering::runs_gemm_small_wgmma(const gpu::MatmulCall& call, const simt::LinearParams& params, int n_rows) const {
  if (call.has_experts() || !params.q8.image || n_rows <= kMinGemmSmallColumns) return false;
  // gemm_wgmma's larger tiles need as many multiprocessors.
  return runs_gemm_small() || n_wgmma_row_tiles(params) * ceil_div(n_rows, simt::kWgmmaTokens) < 3 * device_.n_sms;
}

Status Lowering::lower_gemm_small_wgmma(const gpu::MatmulCall& call, const simt::LinearParams& params, int n_rows) {
  ZINC_CHECK(!call.act);
  const DeviceMatrix& matrix = matrix_of(call.first());
  const int segment_bytes = matrix.format->segment_bytes();
  const int64_t n_row_tiles = n_wgmma_row_tiles(params);
  const simt::GemmSmallWgmmaShape shape = gemm_small_wgmma_shape(n_row_tiles, n_rows, device_.n_sms, segment_bytes);
  Launch launch = Launch::of(params);
  launch.threads = static_cast<unsigned>(simt::gemm_small_wgmma_threads(shape));
  const int64_t n_tiles = ceil_div(n_row_tiles, shape.n_row_groups) * ceil_div(n_rows, shape.n_columns);
  return add({"gemm_small_wgmma", std::string(matrix.format->name), shape_definition("GemmSmallWgmmaShape", shape)},
             "gemm_small_wgmma", launch, std::min<int64_t>(n_tiles, device_.n_sms), 1, 1,
             static_cast<size_t>(simt::gemm_small_wgmma_smem_bytes(shape, segment_bytes)));
}

// The widest tile that the rows fill; a narrower one, and clusters that split the segments, if that leaves
// multiprocessors without work.
Status Lowering::lower_float_gemm(const gpu::MatmulCall& call, simt::LinearParams params, int n_rows) {
  const DeviceMatrix& matrix = matrix_of(call.first());
  const int max_splits = device_.has_clusters ? std::min(kMaxFloatSplits, matrix.n_segments) : 1;
  const auto last = std::ranges::find_if(kFloatTiles, [&](const FloatTile& t) { return t.n_columns >= n_rows; });
  size_t tile = static_cast<size_t>(std::min(last, kFloatTiles.end() - 1) - kFloatTiles.begin());
  for (;; --tile) {
    const FloatTile& t = kFloatTiles[tile];
    int64_t n_blocks = 0;
    for (int part = 0; part < params.n_parts; ++part) {
      n_blocks += ceil_div(params.parts[part].n_out, simt::kPanelRows * t.n_panels);
    }
    const int64_t n_tiles = n_blocks * ceil_div(n_rows, t.n_columns);
    params.n_splits = 1;
    while (2 * params.n_splits <= max_splits && n_tiles * params.n_splits < 2 * device_.n_sms) params.n_splits *= 2;
    const auto shared_bytes = [&] { return float_shared_bytes(*matrix.format, t, params.n_splits, matrix.n_segments); };
    if (tile == 0 && shared_bytes() > static_cast<size_t>(device_.max_shared_bytes)) params.n_splits = 1;
    const size_t shared = shared_bytes();
    const bool fits = shared <= static_cast<size_t>(device_.max_shared_bytes);
    if (tile > 0 && (!fits || 4 * n_tiles * params.n_splits < 3 * device_.n_sms)) continue;
    Launch launch = Launch::of(params);
    launch.threads = t.n_threads;
    launch.cluster = static_cast<unsigned>(params.n_splits);
    return add({"gemm_floats", std::string(matrix.format->name)}, t.kernel, launch, n_blocks * params.n_splits,
               ceil_div(n_rows, t.n_columns), 1, shared);
  }
}

}  // namespace zinc::simt::host
