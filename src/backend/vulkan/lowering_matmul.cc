// Lowering of matmuls: groups, fused prologues and epilogues.
#include <algorithm>

#include "backend/vulkan/kernels.h"
#include "backend/vulkan/lowering.h"

namespace zinc::vulkan {

bool Lowering::is_quantized(const QuantizedActivation* activation) const {
  return std::ranges::find(quantized_, activation) != quantized_.end();
}

// Decode: each workgroup quantizes the row itself, which costs less than another dispatch.
bool Lowering::quantizes_in_kernel(Value x, int n_in) const { return max_rows(x) == 1 && n_in <= kMaxQuantizedInputs; }

Status Lowering::quantize(Value v, const QuantizedActivation& activation) {
  quantized_.push_back(&activation);
  const int vectors_per_row = static_cast<int>(width(v) / activation.n_in);
  const shader::NormParams params{.x = workspace_.address(v),
                                  .weight = 0,
                                  .out = 0,
                                  .q8 = workspace_.q8(activation),
                                  .n_rows = n_rows(v),
                                  .vectors_per_row = vectors_per_row,
                                  .width = activation.n_in,
                                  .kind = kNoNorm,
                                  .eps = 0};
  const bool is_short = activation.n_in <= kSegmentElems;
  const int64_t rows = int64_t{max_rows(v)} * vectors_per_row;
  return emit({"norm", {{kSpecNormWarpPerRow, is_short ? 1 : 0}}}, params, {is_short ? ceil_div(rows, kWarps) : rows},
              {{range_of(v)}, {{params.q8.q, workspace_.q8_bytes(activation)}}});
}

Lowering::OutputBuffers Lowering::output_buffers(Value v, int64_t n_in, Accesses& accesses) {
  const QuantizedActivation* activation = workspace_.fusion().only_quantized(v, n_in);
  if (!activation || quantizes_in_kernel(v, activation->n_in)) {
    accesses.writes.push_back(range_of(v));
    return {.floats = workspace_.address(v)};
  }
  quantized_.push_back(activation);
  OutputBuffers out{.q8 = workspace_.q8(*activation)};
  accesses.writes.push_back({out.q8.q, workspace_.q8_bytes(*activation)});
  if (workspace_.fusion().is_read_as_floats(v)) {
    out.floats = workspace_.address(v);
    accesses.writes.push_back(range_of(v));
  }
  return out;
}

// Fuses the norm (or gated norm) before the matmul into its prologue.
Lowering::RowPrologue Lowering::fill_prologue(Value x, shader::LinearParams& params, Accesses& accesses) const {
  const Fusion& fusion = workspace_.fusion();
  if (const GatedNorm* heads = is_decode() ? fusion.gated_norm(x) : nullptr) {
    const Node &norm = node(heads->norm), &act = node(heads->act);
    params.x = workspace_.address(norm.in[0]);
    params.norm_weight = vector(norm.in[1]);
    params.norm_eps = norm.as<NormParams>().eps;
    params.head_dim = static_cast<int>(inner(norm.out[0]));
    params.gate = workspace_.address(act.in[0]);
    accesses.reads.insert(accesses.reads.end(), {range_of(norm.in[0]), range_of(act.in[0])});
    return {true, kGatedNormInput, static_cast<int>(act.as<GatedActParams>().act)};
  }
  const int norm = max_rows(x) == 1 ? fusion.prologue_norm(x, true) : -1;
  const Value from = norm >= 0 ? node(norm).in[0] : x;
  params.x = workspace_.address(from);
  accesses.reads.push_back(range_of(from));
  if (norm < 0) return {};
  params.norm_weight = vector(node(norm).in[1]);
  params.norm_eps = node(norm).as<NormParams>().eps;
  return {true, kNormInput};
}

// The group's input: floats with a fused prologue; or q8, written by its producer or by a dispatch emitted here.
Status Lowering::fill_inputs(const MatmulGroup& group, RowPrologue& prologue, shader::LinearParams& params,
                             Accesses& accesses) {
  const Value input = node(group.nodes[0]).in[0], x = is_decode() ? workspace_.fusion().row_source(input) : input;
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  const bool is_q8 = matrix.format->q8_block > 0;
  const bool quantizes_row = is_q8 && quantizes_in_kernel(x, matrix.n_in) && params.vectors_per_row == 1;
  if (quantizes_row || !is_q8) {
    prologue = fill_prologue(x, params, accesses);
    prologue.stages_row = prologue.stages_row || quantizes_row;
    return ok_status();
  }
  const QuantizedActivation* activation = workspace_.fusion().quantized(x, matrix.format->q8_block, matrix.n_in);
  ZINC_CHECK(activation != nullptr);
  if (!is_quantized(activation)) {
    if (Status s = quantize(x, *activation); !s.ok()) return s;
  }
  params.q8 = workspace_.q8(*activation);
  accesses.reads.push_back({params.q8.q, workspace_.q8_bytes(*activation)});
  return ok_status();
}

// Matrices and outputs of the group, and the residual add.
void Lowering::fill_parts(const MatmulGroup& group, shader::LinearParams& params, Accesses& accesses) const {
  for (const int i : group.nodes) {
    const Node& n = node(i);
    const bool is_expert = n.op == Op::moe_linear;
    const size_t part = static_cast<size_t>(params.n_parts++);
    params.parts[part] = shader_matrix(matrix_of(i));
    params.outs[part] = workspace_.address(n.out[0]);
    params.biases[part] = vector(n.in[is_expert ? 3 : 2]);
    params.expert_scales[part] = is_expert ? vector(n.in[4]) : 0;
    if (group.act < 0 && group.add < 0) accesses.writes.push_back(range_of(n.out[0]));
  }
  if (group.act >= 0) {
    const Node& act = node(group.act);
    params.act = static_cast<int>(act.as<GatedActParams>().act);
    params.outs[0] = workspace_.address(act.out[0]);
    accesses.writes.push_back(range_of(act.out[0]));
  }
  if (group.add < 0) return;
  const Value other = other_operand(group.add, node(group.nodes[0]).out[0]), sum = node(group.add).out[0];
  params.residual = workspace_.address(other);
  params.outs[0] = workspace_.address(sum);
  accesses.reads.push_back(range_of(other));
  accesses.writes.push_back(range_of(sum));
}

// The operand of `add` that is not `result`.
Value Lowering::other_operand(int add, Value result) const {
  const bool is_first = workspace_.fusion().storage_root(node(add).in[0]) == workspace_.fusion().storage_root(result);
  return node(add).in[is_first ? 1 : 0];
}

// For enough rows; either all experts of a model or none.
bool Lowering::uses_coopmat(const DeviceMatrix& matrix, bool is_expert) const {
  if (device_.coopmat_k == 0 || matrix.format->q8_block == 0) return false;
  return !is_expert || workspace_.expert_tile_rows() == kMatrixExpertRows;
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
Lowering::MatmulShape Lowering::matmul_shape(const MatmulGroup& group, const DeviceMatrix& matrix, int64_t x_rows,
                                             const RowPrologue& prologue) const {
  const bool is_expert = node(group.nodes[0]).op == Op::moe_linear, is_gated = group.act >= 0;
  const bool is_small_batch = x_rows <= kMaxSplitTokens;
  const std::string format(matrix.format->name);
  const ExpertMode expert_mode = !is_expert ? kDense : is_small_batch ? kPairPerTile : kSortedTiles;
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
    rows = is_expert || prologue.stages_row || x_rows == 1 ? 1 : x_rows <= 4 ? 4 : tuning_of(device_).small_batch_rows;
  const int max_inputs = matrix.format->q8_block > 0 ? kMaxQuantizedInputs : max_float_inputs(device_);
  const int quads = !prologue.stages_row ? 1 : matrix.n_segments * kSegmentElems <= 4096 ? 256 : max_inputs / 16;
  const int route = is_expert && is_decode() ? workspace_.fusion().route_of_experts(group) : -1;
  const int n_experts = route < 0 ? 1 : static_cast<int>(ceil_div(width(node(route).in[0]), 32) * 32);
  // Split-K for small matrices, which would leave most of the device idle. Not for float weights: their warps share a
  // staged segment of the activations.
  const int64_t n_workgroups = ceil_div(matrix.n_out, kPanelRows * kWarps) * ceil_div(x_rows, rows);
  const bool is_small = matrix.format->q8_block > 0 && n_workgroups < 2 * multiprocessors_of(device_);
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
            {kSpecMatmulStagesRow, prologue.stages_row ? 1 : 0},
            {kSpecMatmulRowQuads, quads},
            {kSpecMatmulExpertMode, expert_mode},
            {kSpecRouteCapacity, n_experts},
            {kSpecMatmulInputKind, prologue.kind},
            {kSpecLinearKSplits, k_splits(matrix)},
            {kSpecUnalignedRows, matrix.n_in % 4 == 0 ? 0 : 1},
            {kSpecMatmulGateAct, prologue.gate_act},
            {kSpecMatmulLoadsInFlight, loads_in_flight}}},
          rows,
          kPanelRows * (kWarps / panel_warps)};
}

// Gate and up are one dispatch, the rest one dispatch per format, without barriers between them.
Status Lowering::lower_matmuls(const MatmulGroup& group) {
  std::vector<int> remaining = group.nodes;
  while (!remaining.empty()) {
    const bool is_gate_up = group.act >= 0 && remaining.size() == group.nodes.size();
    const PanelFormat* format = matrix_of(remaining.front()).format;
    MatmulGroup part{.nodes = {}, .act = is_gate_up ? group.act : -1, .add = group.add, .at = group.at};
    std::erase_if(remaining, [&](int i) {
      const bool fits = is_gate_up ? i == group.nodes[0] || i == group.nodes[1] : matrix_of(i).format == format;
      if (fits) part.nodes.push_back(i);
      return fits;
    });
    if (Status s = lower_same_format(part); !s.ok()) return s;
  }
  return ok_status();
}

// The selected experts: from the routing dispatch, or selected in this kernel from the logits.
void Lowering::fill_experts(const MatmulGroup& group, bool is_small_batch, shader::LinearParams& params,
                            Accesses& accesses) const {
  const Node& first = node(group.nodes[0]);
  const gpu::ExpertTiles tiles = workspace_.expert_tiles();
  params.expert_ids = workspace_.address(first.in[2]);
  params.n_experts_used = static_cast<int>(width(first.in[2]));
  params.x_per_expert = info(first.in[0]).shape.n_dims() == 1 ? 0 : 1;
  params.sorted_pairs = tiles.sorted_pairs;
  params.tiles = tiles.tiles;
  params.n_tiles = tiles.n_tiles;
  if (const int route = is_decode() ? workspace_.fusion().route_of_experts(group) : -1; route >= 0) {
    const Node& n = node(route);
    params.route = route_of(route);
    accesses.reads.push_back(range_of(n.in[0]));
    accesses.writes.insert(accesses.writes.end(), {range_of(n.out[0]), range_of(n.out[1])});
    return;
  }
  accesses.reads.push_back(is_small_batch ? range_of(first.in[2]) : MemoryRange{tiles.sorted_pairs, tiles.n_bytes});
}

// REQUIRES: all matrices have the same format.
Status Lowering::lower_same_format(const MatmulGroup& group) {
  const Node& first = node(group.nodes[0]);
  const bool is_expert = first.op == Op::moe_linear;
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  shader::LinearParams params{};
  params.n_rows = n_rows(first.in[0]);
  params.vectors_per_row = is_expert ? 1 : static_cast<int>(width(first.in[0]) / matrix.n_in);
  const int64_t x_rows = int64_t{max_rows(first.in[0])} * params.vectors_per_row;
  Accesses accesses;
  RowPrologue prologue;
  if (Status s = fill_inputs(group, prologue, params, accesses); !s.ok()) return s;
  const MatmulShape shape = matmul_shape(group, matrix, x_rows, prologue);
  int64_t n_tiles = ceil_div(x_rows, shape.rows);
  if (is_expert) {
    const bool is_small_batch = x_rows <= kMaxSplitTokens;
    fill_experts(group, is_small_batch, params, accesses);
    n_tiles = is_small_batch ? x_rows * params.n_experts_used
                             : workspace_.max_expert_tiles(x_rows * params.n_experts_used, matrix.n_experts);
  }
  fill_parts(group, params, accesses);
  int64_t n_output_tiles = 0;
  for (int part = 0; part < (group.act >= 0 ? 1 : params.n_parts); ++part) {
    n_output_tiles += ceil_div(params.parts[part].n_out, shape.outputs);
  }
  return emit(with_counter_sync(shape.key, n_output_tiles * n_tiles), params, {n_output_tiles, n_tiles}, accesses);
}

// Down projections of the experts, weighted sum, shared expert and residual in one dispatch.
Status Lowering::lower_moe_down_combine(const MoeDownCombine& moe) {
  const Node &down = node(moe.down), &combine = node(moe.combine);
  const DeviceMatrix& matrix = matrix_of(moe.down);
  shader::LinearParams params{};
  Accesses accesses{{range_of(down.in[0]), range_of(down.in[2]), range_of(combine.in[1])}, {}};
  params.parts[0] = shader_matrix(matrix);
  params.biases[0] = vector(down.in[3]);
  params.expert_scales[0] = vector(down.in[4]);
  params.x = workspace_.address(down.in[0]);
  params.expert_ids = workspace_.address(down.in[2]);
  params.n_experts_used = static_cast<int>(width(down.in[2]));
  params.expert_weights = workspace_.address(combine.in[1]);
  Value result = combine.out[0];
  if (moe.shared >= 0) {
    const Value x = node(moe.shared).in[0], gate = node(moe.shared_act).in[0];
    params.parts[1] = shader_matrix(matrix_of(moe.shared));
    params.shared_expert_x = workspace_.address(x);
    params.shared_expert_gate = workspace_.address(gate);
    accesses.reads.insert(accesses.reads.end(), {range_of(x), range_of(gate)});
    result = node(moe.shared_add).out[0];
  }
  if (moe.add >= 0) {
    const Value other = other_operand(moe.add, result);
    params.residual = workspace_.address(other);
    accesses.reads.push_back(range_of(other));
    result = node(moe.add).out[0];
  }
  params.outs[0] = workspace_.address(result);
  accesses.writes.push_back(range_of(result));
  const int n_expert_segments = (params.n_experts_used + (moe.shared >= 0 ? 1 : 0)) * matrix.n_segments;
  const int quads = n_expert_segments * kSegmentElems / 16;
  const int64_t n_workgroups = ceil_div(matrix.n_out, kPanelRows);
  return emit(with_counter_sync({"moe_down." + std::string(matrix.format->name),
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
