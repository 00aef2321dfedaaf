// Lowering of matmuls: groups, fused prologues and epilogues.
#include <algorithm>

#include "backend/vulkan/kernels.h"
#include "backend/vulkan/lowering.h"

namespace zinc::vulkan {

bool Lowering::stages_row(const gpu::MatmulCall& call) const {
  return call.norm || (matrix_of(call.first()).format->q8_block > 0 && !call.q8);
}

// For enough rows; either all experts of a model or none.
bool Lowering::uses_coopmat(const DeviceMatrix& matrix, bool is_expert) const {
  if (device_.coopmat_k == 0 || matrix.format->q8_block == 0) return false;
  return !is_expert || (workspace_.has_matrix_experts() && workspace_.expert_tile_rows() != kDotExpertRows);
}

bool Lowering::uses_gemm_floats(const gpu::MatmulCall& call) const {
  constexpr size_t kSharedBytes = 40 << 10;  // shader/gemm_floats.comp
  return matrix_of(call.first()).format->q8_block == 0 && !call.has_experts() && !call.act && !stages_row(call) &&
         device_.shared_bytes >= kSharedBytes;
}

bool has_planes(const Capabilities& device, const PanelFormat& format, int warp_rows) {
  const std::string name(format.name);
  if (find_kernel("gemm_planes." + name).empty()) return false;
  if (find_kernel("gemm." + name).empty()) return true;
  const size_t rows = 32 * static_cast<size_t>(warp_rows), outputs = 32 * static_cast<size_t>(kWarps / warp_rows);
  constexpr size_t kRowBytes = 16 * 9,
                   kExpertBytes = 256;  // bytes per row or output in a plane; shared memory of expert tiles
  size_t n_bytes = kRowBytes * (rows + 2 * outputs) + 4 * outputs + 12 * rows + kExpertBytes;
  // Minima and sums reuse the shared memory of the planes (warp_rows == 2) or have their own.
  if (format.has_minima) n_bytes += warp_rows == 2 ? 4 * outputs : 52 * outputs + 48 * rows;
  return n_bytes <= device.shared_bytes;
}

// Chooses the kernel and its tile.
Lowering::MatmulShape Lowering::matmul_shape(const gpu::MatmulCall& call, int64_t x_rows) const {
  const DeviceMatrix& matrix = matrix_of(call.first());
  const bool is_expert = call.has_experts(), is_gated = call.act != nullptr, stages = stages_row(call);
  const bool is_small_batch = x_rows <= kMaxSplitTokens;
  const std::string format(matrix.format->name);
  const ExpertMode expert_mode = !is_expert ? kDense : is_small_batch ? kPairPerTile : kSortedTiles;
  // The tiles of experts are those of the largest step of the class.
  const bool is_small_gemm =
      is_expert ? !is_small_batch && workspace_.expert_tile_rows() == kSmallTileRows : uses_gemm_small(x_rows);
  if (is_small_gemm && uses_coopmat(matrix, is_expert)) {
    const int n_tiles = is_expert || x_rows <= kSmallTileRows ? 1 : 2;
    return {{"gemm_small." + format,
             {{kSpecGemmSmallTiles, n_tiles},
              {kSpecGemmDepth, device_.coopmat_k},
              {kSpecLinearKSplits, k_splits(matrix)},
              {kSpecMatmulExpertMode, expert_mode}}},
            kSmallTileRows * n_tiles,
            kPanelRows * (kWarps / k_splits(matrix)),
            true};
  }
  if (!is_small_batch && uses_coopmat(matrix, is_expert)) {
    const int warp_rows =
        is_expert || x_rows <= kMatrixExpertRows ? 2 : 4;  // warps along the activation rows, 32 rows each
    return {{(has_planes(device_, *matrix.format, warp_rows) ? "gemm_planes." : "gemm.") + format,
             {{kSpecGemmWarpRows, warp_rows},
              {kSpecGemmDepth, device_.coopmat_k},
              {kSpecMatmulGatedAct, is_gated ? 1 : 0},
              {kSpecMatmulExpertMode, expert_mode}}},
            32 * warp_rows,
            32 * (kWarps / warp_rows) / (is_gated ? 2 : 1)};
  }
  int rows = is_expert ? workspace_.expert_tile_rows() : tuning_of(device_).prefill_rows;
  if (is_small_batch)
    rows = is_expert || stages || x_rows == 1 ? 1 : x_rows <= 4 ? 4 : tuning_of(device_).small_batch_rows;
  const int max_inputs = matrix.format->q8_block > 0 ? kMaxQuantizedInputs : max_float_inputs(device_);
  const int quads = !stages ? 1 : matrix.n_segments * kSegmentElems <= 4096 ? 256 : max_inputs / 16;
  const int n_experts = !call.route ? 1 : static_cast<int>(ceil_div(width(call.route->in[0]), 32) * 32);
  const MatmulInputKind input = call.gate ? kGatedNormInput : call.norm ? kNormInput : kPlainInput;
  // Split-K for small matrices, which would leave most of the device idle. With float weights only for few rows: else
  // their warps share a staged segment of the activations.
  const int64_t n_unsplit = ceil_div(matrix.n_out, kPanelRows * kWarps) * ceil_div(x_rows, rows);
  const bool can_split = matrix.format->q8_block > 0 || (!is_expert && x_rows <= kMaxSmallRows);
  const bool is_small = can_split && n_unsplit < 2 * multiprocessors_of(device_);
  if (is_small && x_rows > 1 && uses_gemm_floats(call)) {
    return {{"gemm_floats." + format,
             {{kSpecLinearKSplits, k_splits(matrix)},
              {kSpecMatmulLoadsInFlight, tuning_of(device_).float_loads_in_flight},
              {kSpecUnalignedRows, matrix.n_in % 4 == 0 ? 0 : 1}}},
            kGemmFloatsColumns,
            kPanelRows * (kWarps / k_splits(matrix))};
  }
  if (is_small && matrix.format->q8_block == 0) rows = std::min(rows, tuning_of(device_).small_batch_rows);
  const bool splits = is_small_batch || is_small;
  // A dispatch of few workgroups (a router) may use more registers for loads in flight: occupancy does not matter.
  const bool has_few_workgroups =
      matrix.format->q8_block == 0 && 4 * ceil_div(matrix.n_out, kPanelRows) <= multiprocessors_of(device_);
  const Tuning& tuning = tuning_of(device_);
  const int loads_in_flight = rows > 1             ? 8
                              : has_few_workgroups ? tuning.float_loads_few_workgroups
                                                   : tuning.float_loads_in_flight;
  const int n_parallel_parts = splits && is_gated && 2 * k_splits(matrix) <= kWarps ? 2 : 1;  // gate and up in parallel
  const int panel_warps = splits ? k_splits(matrix) * n_parallel_parts : 1;
  return {{"linear." + format,
           {{kSpecLinearRows, rows},
            {kSpecLinearSplitK, splits ? 1 : 0},
            {kSpecMatmulGatedAct, is_gated ? 1 : 0},
            {kSpecMatmulStagesRow, stages ? 1 : 0},
            {kSpecMatmulRowQuads, quads},
            {kSpecMatmulExpertMode, expert_mode},
            {kSpecRouteCapacity, n_experts},
            {kSpecMatmulInputKind, input},
            {kSpecLinearKSplits, k_splits(matrix)},
            {kSpecUnalignedRows, matrix.n_in % 4 == 0 ? 0 : 1},
            {kSpecMatmulGateAct, call.gate ? act_of(*call.gate) : 0},
            {kSpecMatmulLoadsInFlight, loads_in_flight}}},
          rows,
          kPanelRows * (kWarps / panel_warps)};
}

// The selected experts: from the routing dispatch, or selected in this kernel from the logits.
void Lowering::fill_experts(const gpu::MatmulCall& call, bool is_small_batch, shader::LinearParams& params,
                            Accesses& accesses) const {
  const gpu::ExpertTiles tiles = workspace_.expert_tiles();
  params.sorted_pairs = tiles.sorted_pairs;
  params.tiles = tiles.tiles;
  params.n_tiles = tiles.n_tiles;
  if (call.route) {
    const Node& n = *call.route;
    params.route = route_of(n);
    accesses.reads.push_back(range_of(n.in[0]));
    accesses.writes.insert(accesses.writes.end(), {range_of(n.out[0]), range_of(n.out[1])});
    return;
  }
  accesses.reads.push_back(is_small_batch ? range_of(call.first().in[2])
                                          : MemoryRange{tiles.sorted_pairs, tiles.n_bytes});
}

Status Lowering::lower(const gpu::MatmulCall& call) {
  const Node& first = call.first();
  const DeviceMatrix& matrix = matrix_of(first);
  shader::LinearParams params{};
  Accesses accesses;
  params.n_rows = n_rows(first.in[0]);
  fill_matmul(call, params, accesses);
  if (call.gate) {
    params.head_dim = static_cast<int>(inner(call.norm->out[0]));
    params.gate = at(call.gate->in[0]);
    accesses.reads.push_back(range_of(call.gate->in[0]));
  }
  const int64_t x_rows = int64_t{max_rows(first.in[0])} * params.vectors_per_row;
  const MatmulShape shape = matmul_shape(call, x_rows);
  int64_t n_tiles = ceil_div(x_rows, shape.rows);
  if (call.has_experts()) {
    const bool is_small_batch = x_rows <= kMaxSplitTokens;
    fill_experts(call, is_small_batch, params, accesses);
    n_tiles = is_small_batch ? x_rows * params.n_experts_used
                             : workspace_.max_expert_tiles(x_rows * params.n_experts_used, matrix.n_experts);
  }
  int64_t n_output_tiles = 0;
  for (int part = 0; part < (call.act ? 1 : params.n_parts); ++part) {
    n_output_tiles += ceil_div(params.parts[part].n_out, shape.outputs);
  }
  if (shape.is_item_list) {  // as many workgroups as run at once
    const int64_t n_workgroups = int64_t{multiprocessors_of(device_)} * tuning_of(device_).small_gemm_workgroups;
    return emit(with_counter_sync(shape.key), params, {std::min(n_output_tiles * n_tiles, n_workgroups)}, accesses);
  }
  const Size grid{n_output_tiles, n_tiles};
  // Quantized rows are read through a non-coherent cache, segment by segment, and so are sorted pairs: behind a
  // barrier.
  const bool has_sorted_pairs = call.has_experts() && x_rows > kMaxSplitTokens;
  const bool can_wait = !has_sorted_pairs && (stages_row(call) || matrix.format->q8_block == 0);
  if (sizes_.max_tokens == 1 && can_wait) {
    return emit(with_warm_up(shape.key, grid.x * grid.y), params, grid, accesses);
  }
  return emit(with_counter_sync(shape.key, can_wait ? kWaitsAndSignals : kSignals), params, grid, accesses);
}

// Down projections of the experts, weighted sum, shared expert and residual in one dispatch.
Status Lowering::lower(const gpu::MoeDownCall& call) {
  const Node& down = *call.down;
  const Value weights = call.combine->in[1];
  const DeviceMatrix& matrix = matrix_of(down);
  shader::LinearParams params{};
  Accesses accesses{{range_of(down.in[0]), range_of(down.in[2]), range_of(weights)}, {range_of(call.out())}};
  params.parts[0] = shader_matrix(matrix);
  params.biases[0] = vector(down.in[3]);
  params.expert_scales[0] = vector(down.in[4]);
  params.x = workspace_.address(down.in[0]);
  params.expert_ids = workspace_.address(down.in[2]);
  params.n_experts_used = static_cast<int>(width(down.in[2]));
  params.expert_weights = workspace_.address(weights);
  params.outs[0] = workspace_.address(call.out());
  if (call.shared) {
    const Value x = call.shared->in[0], gate = call.shared_act->in[0];
    params.parts[1] = shader_matrix(matrix_of(*call.shared));
    params.shared_expert_x = workspace_.address(x);
    params.shared_expert_gate = workspace_.address(gate);
    accesses.reads.insert(accesses.reads.end(), {range_of(x), range_of(gate)});
  }
  if (call.add) {
    params.residual = workspace_.address(call.addend);
    accesses.reads.push_back(range_of(call.addend));
  }
  const int n_expert_segments = (params.n_experts_used + (call.shared ? 1 : 0)) * matrix.n_segments;
  const int quads = n_expert_segments * kSegmentElems / 16;
  const int64_t n_workgroups = ceil_div(matrix.n_out, kPanelRows);
  return emit(with_warm_up({"moe_down." + std::string(matrix.format->name),
                            {{kSpecMoeDownSegments, n_expert_segments},
                             {kSpecMatmulStagesRow, 1},
                             {kSpecMatmulRowQuads, quads},
                             {kSpecMatmulExpertMode, kPairPerTile},
                             {kSpecRouteCapacity, 1},
                             {kSpecMoeDownPrefetch, tuning_of(device_).moe_down_prefetch},
                             {kSpecUnalignedRows, matrix.n_in % 4 == 0 ? 0 : 1}}},
                           n_workgroups),
              params, {n_workgroups}, accesses);
}

}  // namespace zinc::vulkan
