#include "backend/cuda/lowering.h"

#include <algorithm>
#include <array>

namespace zinc::cuda {
namespace {

// Two stages of gemm.cu: a segment of the weights and of the activations, with their scales and sums.
size_t gemm_shared_bytes(const PanelFormat& format) {
  const int weights = simt::kTileRows * (format.header_bytes + simt::kSegmentGroups * format.group_bytes);
  const int column = simt::kSegmentElems + 16 + 2 * simt::kSegmentGroups * static_cast<int>(sizeof(float));
  return 2 * static_cast<size_t>(weights + simt::kTileColumns * column);
}

size_t wide_shared_bytes(const PanelFormat& format) {
  const int kind = format.rounded_block == simt::kSegmentElems ? simt::kWideIntegers
                   : format.has_power_scales                   ? simt::kWideFolded
                                                               : simt::kWideFloats;
  const simt::WideLayout layout = simt::wide_layout(format.header_bytes, format.group_bytes, kind);
  return static_cast<size_t>(simt::wide_shared_bytes(layout));
}

}  // namespace

Result<simt::Rounded> Lowering::rounded(Value v, const DeviceMatrix& matrix) {
  const int n_in = matrix.matrix.n_in;
  const RoundedForm* form = room_.fusion().form(v, matrix.format->rounded_block, n_in);
  ZINC_CHECK(form != nullptr);
  const simt::Rounded out = form_of(*form, v);
  if (std::ranges::find(made_, form) != made_.end()) return out;
  made_.push_back(form);
  const simt::RoundParams params{.x = room_.floats(v),
                                 .out = out,
                                 .n_rows = n_rows(v),
                                 .per_row = static_cast<int>(width(v) / n_in),
                                 .width = n_in,
                                 .block = form->block};
  const int64_t n_segments = div_up(n_in, simt::kSegmentElems);
  if (Status s = emit_warps("rows", "round_rows", params, int64_t{max_rows(v)} * params.per_row * n_segments);
      !s.ok()) {
    return s.error();
  }
  return out;
}

Lowering::Written Lowering::written(Value v, int64_t n_in) {
  const RoundedForm* form = room_.fusion().only_form(v, n_in);
  if (!form) return {.floats = room_.floats(v)};
  made_.push_back(form);
  return {.floats = room_.fusion().is_read_as_floats(v) ? room_.floats(v) : nullptr,
          .rounded = form_of(*form, v),
          .block = form->block};
}

// What only gemm_wide.cu reads is not written in a step of few rows.
simt::Rounded Lowering::form_of(const RoundedForm& form, Value v) const {
  simt::Rounded out = room_.rounded(form);
  if (is_small(v, width(v) / form.n_in)) out.wide = nullptr;
  return out;
}

// The group's input: rounded by its maker, rounded or normed on the way in, or rounded now.
Status Lowering::fill_inputs(const ProductGroup& group, bool is_small, simt::LinearParams& params) {
  const Value x = node(group.nodes[0]).in[0];
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  params.x = room_.floats(x);
  if (matrix.format->rounded_block == 0) return ok_status();
  const RoundedForm* form = room_.fusion().form(x, matrix.format->rounded_block, matrix.matrix.n_in);
  const bool is_made = std::ranges::find(made_, form) != made_.end();
  if (is_made || !is_small) {
    ZINC_TRY(rounded_x, rounded(x, matrix));
    params.rounded = rounded_x;
    return ok_status();
  }
  if (const int norm = room_.fusion().foldable_norm(x, false); norm >= 0) {
    params.x = room_.floats(node(norm).in[0]);
    params.norm_weight = vector(node(norm).in[1]);
    params.norm_eps = node(norm).as<zinc::NormParams>().eps;
    params.is_normed = 1;
  }
  return ok_status();
}

// A step of one row takes them all at once, others those of one format.
Status Lowering::lower_products(const ProductGroup& group) {
  if (is_one_row(group)) return lower_one_row(group);
  std::vector<int> rest = group.nodes;
  while (!rest.empty()) {
    ProductGroup alike{.nodes = {}, .act = -1, .add = group.add, .at = group.at};
    if (group.act >= 0 && rest.size() == group.nodes.size()) {
      alike.act = group.act;
      alike.nodes = {rest[0], rest[1]};
    } else {
      for (int i : rest) {
        if (matrix_of(i).format == matrix_of(rest[0]).format && alike.nodes.size() < simt::kMaxParts) {
          alike.nodes.push_back(i);
        }
      }
    }
    std::erase_if(rest, [&](int i) { return std::ranges::find(alike.nodes, i) != alike.nodes.end(); });
    if (Status s = lower_alike(alike); !s.ok()) return s;
  }
  return ok_status();
}

Status Lowering::lower_alike(const ProductGroup& group) {
  const Node& first = node(group.nodes[0]);
  const bool is_expert = first.op == Op::moe_linear;
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  simt::LinearParams params{};
  params.act = simt::kNoAct;
  params.n_rows = n_rows(first.in[0]);
  params.per_row = is_expert ? 1 : static_cast<int>(width(first.in[0]) / matrix.matrix.n_in);
  if (is_expert) {
    params.expert_ids = room_.ints(first.in[2]);
    params.n_used = static_cast<int>(width(first.in[2]));
    params.x_per_used = info(first.in[0]).shape.n_dims() == 1 ? 0 : 1;
  }
  const bool small = is_small(first.in[0], params.per_row);
  if (Status s = fill_inputs(group, small, params); !s.ok()) return s;
  const int rows = max_rows(first.in[0]) * (is_expert ? params.n_used : params.per_row);
  fill_parts(group, params);
  params.tiles = room_.expert_tiles();
  if (!small && !is_expert && matrix.format->rounded_block == 0) {
    if (Status s = lower_floats(params, matrix, rows); !s.ok()) return s;
    return group.act >= 0 ? lower_gated_act(group.act) : ok_status();
  }
  const bool on_matrix_cores = !small && matrix.format->rounded_block > 0 && device_.has_matrix_cores() &&
                               gemm_shared_bytes(*matrix.format) <= static_cast<size_t>(device_.max_shared_bytes());
  return on_matrix_cores ? lower_matrix_cores(group, params, rows) : lower_panels(group, params, rows);
}

// Matrices and results of the group's products; the sum, if there is one.
void Lowering::fill_parts(const ProductGroup& group, simt::LinearParams& params) const {
  for (const int i : group.nodes) {
    const Node& n = node(i);
    const bool is_expert = n.op == Op::moe_linear;
    params.parts[params.n_parts] = matrix_of(i).matrix;
    params.outs[params.n_parts] = room_.floats(n.out[0]);
    params.biases[params.n_parts] = vector(n.in[is_expert ? 3 : 2]);
    params.expert_scales[params.n_parts] = is_expert ? vector(n.in[4]) : nullptr;
    ++params.n_parts;
  }
  if (group.add < 0) return;
  const Node& add = node(group.add);
  const bool is_first = room_.fusion().owner(add.in[0]) == room_.fusion().owner(node(group.nodes[0]).out[0]);
  params.added = room_.floats(add.in[is_first ? 1 : 0]);
  params.outs[0] = room_.floats(add.out[0]);
}

Status Lowering::lower_panels(const ProductGroup& group, simt::LinearParams params, int n_rows) {
  struct Tile {
    const char* kernel;
    int n_rows;
  };
  static constexpr std::array<Tile, 3> kTiles = {{{"linear_8", 8}, {"linear_4", 4}, {"linear_1", 1}}};
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  if (group.act >= 0) {
    params.act = static_cast<int>(node(group.act).as<GatedActParams>().act);
    params.outs[0] = room_.floats(node(group.act).out[0]);
  }
  const int most_warps = group.act >= 0 ? simt::kWarps / 2 : simt::kWarps;  // a gate's block has panels of both
  params.warps_per_panel = 1;
  while (params.warps_per_panel * 2 <= std::min(most_warps, matrix.matrix.n_segments)) params.warps_per_panel *= 2;
  const int panels = simt::kWarps / params.warps_per_panel;
  int64_t n_blocks = 0;
  for (int part = 0; part < params.n_parts; ++part) {
    const int64_t n_panels = div_up(params.parts[part].n_out, simt::kPanelRows);
    if (group.act < 0 || part == 0) n_blocks += div_up(n_panels, group.act < 0 ? panels : panels / 2);
  }
  for (const Tile& tile : kTiles) {
    if (params.expert_ids ? tile.n_rows > 1 : tile.n_rows / 2 >= n_rows) continue;  // at least half of a tile is used
    constexpr int kRoundedFloats = simt::row_segment_bytes(false) / 4;
    const bool rounds = matrix.format->rounded_block > 0;
    const int64_t floats = int64_t{panels} * matrix.matrix.n_segments * tile.n_rows * simt::kPanelRows +
                           (rounds ? simt::kWarps * tile.n_rows * kRoundedFloats : 0);
    const size_t shared = sizeof(float) * static_cast<size_t>(floats);
    if (shared > static_cast<size_t>(device_.max_shared_bytes()) && tile.n_rows > 1) continue;
    return emit({"linear", std::string(matrix.format->name)}, tile.kernel, params, n_blocks,
                div_up(n_rows, tile.n_rows), 1, shared);
  }
  return ok_status();
}

Status Lowering::lower_matrix_cores(const ProductGroup& group, simt::LinearParams params, int n_rows) {
  int64_t n_tiles = 0;
  for (int part = 0; part < params.n_parts; ++part) n_tiles += div_up(params.parts[part].n_out, simt::kTileRows);
  params.n_row_tiles = static_cast<int>(n_tiles);
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  const int tile_columns = matrix_tile_columns();
  const int64_t n_columns =
      params.expert_ids ? room_.max_expert_tiles(n_rows, matrix.n_stack) : div_up(n_rows, tile_columns);
  const std::string format(matrix.format->name);
  Status made = ok_status();
  if (device_.has_warpgroups()) {
    Launch launch = Launch::of(nullptr, params, 1);
    launch.threads = simt::kWideThreads;
    const int64_t most = n_tiles * n_columns * (params.expert_ids ? 1 : 2);  // the last tiles are halved
    made = add({"gemm_wide", format}, "gemm_wide", launch, std::min<int64_t>(most, device_.n_multiprocessors()), 1, 1,
               wide_shared_bytes(*matrix.format));
  } else {
    made = emit({"gemm", format}, "gemm", params, n_tiles, n_columns, 1, gemm_shared_bytes(*matrix.format));
  }
  if (!made.ok()) return made;
  return group.act >= 0 ? lower_gated_act(group.act) : ok_status();
}

Status Lowering::lower_floats(const simt::LinearParams& params, const DeviceMatrix& matrix, int n_rows) {
  int64_t n_tiles = 0;
  for (int part = 0; part < params.n_parts; ++part) n_tiles += div_up(params.parts[part].n_out, simt::kFloatTile);
  return emit({"gemm_floats", std::string(matrix.format->name)}, "gemm_floats", params, n_tiles,
              div_up(n_rows, simt::kFloatTile));
}

}  // namespace zinc::cuda
