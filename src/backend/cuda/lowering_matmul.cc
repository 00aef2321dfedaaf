#include "backend/cuda/lowering.h"

#include <algorithm>
#include <array>

namespace zinc::cuda {
namespace {

// Two pipeline stages of gemm.cu: a K segment of weights and activations, with their scales and sums.
size_t gemm_shared_bytes(const PanelFormat& format) {
  const int weights = simt::kTileRows * (format.header_bytes + simt::kSegmentGroups * format.group_bytes);
  const int token = simt::kSegmentElems + 16 + 2 * simt::kSegmentGroups * static_cast<int>(sizeof(float));
  return 2 * static_cast<size_t>(weights + simt::kTileTokens * token);
}

size_t wgmma_shared_bytes(const PanelFormat& format) {
  const int kind = format.q8_block == simt::kSegmentElems ? simt::kWgmmaIntegerScales
                   : format.has_power_scales              ? simt::kWgmmaFoldedScales
                                                          : simt::kWgmmaFloatScales;
  const simt::WgmmaLayout layout = simt::wgmma_layout(format.header_bytes, format.group_bytes, kind);
  return static_cast<size_t>(simt::wgmma_shared_bytes(layout));
}

}  // namespace

Result<simt::Q8Activation> Lowering::quantized(Value v, const DeviceMatrix& matrix) {
  const int n_in = matrix.n_in;
  const QuantizedActivation* activation = workspace_.fusion().quantized(v, matrix.format->q8_block, n_in);
  ZINC_CHECK(activation != nullptr);
  const simt::Q8Activation out = q8_buffers(*activation, v);
  if (std::ranges::find(quantized_written_, activation) != quantized_written_.end()) return out;
  quantized_written_.push_back(activation);
  const simt::QuantizeParams params{.x = workspace_.floats(v),
                                    .out = out,
                                    .n_rows = n_rows(v),
                                    .vectors_per_row = static_cast<int>(width(v) / n_in),
                                    .width = n_in,
                                    .q8_block = activation->block};
  const int64_t n_segments = ceil_div(n_in, simt::kSegmentElems);
  if (Status s =
          emit_warps("row_ops", "quantize_rows", params, int64_t{max_rows(v)} * params.vectors_per_row * n_segments);
      !s.ok()) {
    return s.error();
  }
  return out;
}

Lowering::OutputBuffers Lowering::output_buffers(Value v, int64_t n_in) {
  const QuantizedActivation* activation = workspace_.fusion().only_quantized(v, n_in);
  if (!activation) return {.floats = workspace_.floats(v)};
  quantized_written_.push_back(activation);
  return {.floats = workspace_.fusion().is_read_as_floats(v) ? workspace_.floats(v) : nullptr,
          .q8 = q8_buffers(*activation, v),
          .block = activation->block};
}

// wgmma_aux, read only by gemm_wgmma, is not written in small steps.
simt::Q8Activation Lowering::q8_buffers(const QuantizedActivation& activation, Value v) const {
  simt::Q8Activation out = workspace_.quantized(activation);
  if (is_small(v, width(v) / activation.n_in)) out.wgmma_aux = nullptr;
  return out;
}

// The group's input: quantized by its producer, quantized (and normed) in the prologue, or quantized by a kernel now.
Status Lowering::fill_inputs(const MatmulGroup& group, bool is_small, simt::LinearParams& params) {
  const Value x = node(group.nodes[0]).in[0];
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  params.x = workspace_.floats(x);
  if (matrix.format->q8_block == 0) return ok_status();
  const QuantizedActivation* activation = workspace_.fusion().quantized(x, matrix.format->q8_block, matrix.n_in);
  const bool is_already_quantized = std::ranges::find(quantized_written_, activation) != quantized_written_.end();
  if (is_already_quantized || !is_small) {
    ZINC_TRY(quantized_x, quantized(x, matrix));
    params.q8 = quantized_x;
    return ok_status();
  }
  if (const int norm = workspace_.fusion().prologue_norm(x, false); norm >= 0) {
    params.x = workspace_.floats(node(norm).in[0]);
    params.norm_weight = vector(node(norm).in[1]);
    params.norm_eps = node(norm).as<zinc::NormParams>().eps;
    params.is_normed = 1;
  }
  return ok_status();
}

// Decode runs all matrices in one launch; other steps run one launch per weight format.
Status Lowering::lower_matmuls(const MatmulGroup& group) {
  if (is_gemv(group)) return lower_decode_matmuls(group);
  std::vector<int> rest = group.nodes;
  while (!rest.empty()) {
    MatmulGroup same_format{.nodes = {}, .act = -1, .add = group.add, .at = group.at};
    if (group.act >= 0 && rest.size() == group.nodes.size()) {
      same_format.act = group.act;
      same_format.nodes = {rest[0], rest[1]};
    } else {
      for (int i : rest) {
        if (matrix_of(i).format == matrix_of(rest[0]).format && same_format.nodes.size() < simt::kMaxParts) {
          same_format.nodes.push_back(i);
        }
      }
    }
    std::erase_if(rest, [&](int i) { return std::ranges::find(same_format.nodes, i) != same_format.nodes.end(); });
    if (Status s = lower_same_format(same_format); !s.ok()) return s;
  }
  return ok_status();
}

Status Lowering::lower_same_format(const MatmulGroup& group) {
  const Node& first = node(group.nodes[0]);
  const bool is_expert = first.op == Op::moe_linear;
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  simt::LinearParams params{};
  params.act = simt::kNoAct;
  params.n_rows = n_rows(first.in[0]);
  params.vectors_per_row = is_expert ? 1 : static_cast<int>(width(first.in[0]) / matrix.n_in);
  if (is_expert) {
    params.expert_ids = workspace_.ints(first.in[2]);
    params.n_experts_used = static_cast<int>(width(first.in[2]));
    params.x_per_expert = info(first.in[0]).shape.n_dims() == 1 ? 0 : 1;
  }
  const bool small = is_small(first.in[0], params.vectors_per_row);
  if (Status s = fill_inputs(group, small, params); !s.ok()) return s;
  const int rows = max_rows(first.in[0]) * (is_expert ? params.n_experts_used : params.vectors_per_row);
  fill_parts(group, params);
  params.tiles = workspace_.expert_tiles();
  if (!small && !is_expert && matrix.format->q8_block == 0) {
    if (Status s = lower_float_gemm(params, matrix, rows); !s.ok()) return s;
    return group.act >= 0 ? lower_gated_act(group.act) : ok_status();
  }
  const bool on_tensor_cores = !small && matrix.format->q8_block > 0 && device_.has_tensor_cores() &&
                               gemm_shared_bytes(*matrix.format) <= static_cast<size_t>(device_.max_shared_bytes);
  return on_tensor_cores ? lower_tensor_cores(group, params, rows) : lower_cuda_cores(group, params, rows);
}

// Matrices and outputs of the group, and the epilogue's add.
void Lowering::fill_parts(const MatmulGroup& group, simt::LinearParams& params) const {
  for (const int i : group.nodes) {
    const Node& n = node(i);
    const bool is_expert = n.op == Op::moe_linear;
    params.parts[params.n_parts] = simt_matrix(matrix_of(i));
    params.outs[params.n_parts] = workspace_.floats(n.out[0]);
    params.biases[params.n_parts] = vector(n.in[is_expert ? 3 : 2]);
    params.expert_scales[params.n_parts] = is_expert ? vector(n.in[4]) : nullptr;
    ++params.n_parts;
  }
  if (group.add < 0) return;
  const Node& add = node(group.add);
  const bool is_first =
      workspace_.fusion().storage_root(add.in[0]) == workspace_.fusion().storage_root(node(group.nodes[0]).out[0]);
  params.residual = workspace_.floats(add.in[is_first ? 1 : 0]);
  params.outs[0] = workspace_.floats(add.out[0]);
}

Status Lowering::lower_cuda_cores(const MatmulGroup& group, simt::LinearParams params, int n_rows) {
  struct Tile {
    const char* kernel;
    int n_rows;
  };
  static constexpr std::array<Tile, 3> kTiles = {{{"linear_8", 8}, {"linear_4", 4}, {"linear_1", 1}}};
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  if (group.act >= 0) {
    params.act = static_cast<int>(node(group.act).as<GatedActParams>().act);
    params.outs[0] = workspace_.floats(node(group.act).out[0]);
  }
  const int max_warps =
      group.act >= 0 ? simt::kWarps / 2 : simt::kWarps;  // with a gate, a block has panels of gate and up
  params.warps_per_panel = 1;
  while (params.warps_per_panel * 2 <= std::min(max_warps, matrix.n_segments)) params.warps_per_panel *= 2;
  const int panels = simt::kWarps / params.warps_per_panel;
  int64_t n_blocks = 0;
  for (int part = 0; part < params.n_parts; ++part) {
    const int64_t n_panels = ceil_div(params.parts[part].n_out, simt::kPanelRows);
    if (group.act < 0 || part == 0) n_blocks += ceil_div(n_panels, group.act < 0 ? panels : panels / 2);
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

Status Lowering::lower_tensor_cores(const MatmulGroup& group, simt::LinearParams params, int n_rows) {
  int64_t n_tiles = 0;
  for (int part = 0; part < params.n_parts; ++part) n_tiles += ceil_div(params.parts[part].n_out, simt::kTileRows);
  params.n_row_tiles = static_cast<int>(n_tiles);
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  const int tile_tokens = gemm_tile_tokens();
  const int64_t n_token_tiles =
      params.expert_ids ? workspace_.max_expert_tiles(n_rows, matrix.n_experts) : ceil_div(n_rows, tile_tokens);
  const std::string format(matrix.format->name);
  Status emitted = ok_status();
  if (device_.has_wgmma()) {
    Launch launch = Launch::of(nullptr, params, 1);
    launch.threads = simt::kWgmmaThreads;
    const int64_t max_blocks =
        n_tiles * n_token_tiles * (params.expert_ids ? 1 : 2);  // the last tiles are split in two
    emitted = add({"gemm_wgmma", format}, "gemm_wgmma", launch, std::min<int64_t>(max_blocks, device_.n_sms), 1, 1,
                  wgmma_shared_bytes(*matrix.format));
  } else {
    emitted = emit({"gemm", format}, "gemm", params, n_tiles, n_token_tiles, 1, gemm_shared_bytes(*matrix.format));
  }
  if (!emitted.ok()) return emitted;
  return group.act >= 0 ? lower_gated_act(group.act) : ok_status();
}

Status Lowering::lower_float_gemm(const simt::LinearParams& params, const DeviceMatrix& matrix, int n_rows) {
  int64_t n_tiles = 0;
  for (int part = 0; part < params.n_parts; ++part) n_tiles += ceil_div(params.parts[part].n_out, simt::kFloatTile);
  return emit({"gemm_floats", std::string(matrix.format->name)}, "gemm_floats", params, n_tiles,
              ceil_div(n_rows, simt::kFloatTile));
}

}  // namespace zinc::cuda
