// Lowering of matrix products: groups of them, and what happens to their inputs and results.
#include <algorithm>

#include "backend/vulkan/kernels.h"
#include "backend/vulkan/lowering.h"

namespace zinc::vulkan {

bool Lowering::is_made(const RoundedForm* form) const { return std::ranges::find(made_, form) != made_.end(); }

// One row: each workgroup rounds it for itself, which costs less than another dispatch.
bool Lowering::rounds_inside(Value x, int n_in) const { return max_rows(x) == 1 && n_in <= kMaxRoundedInputs; }

Status Lowering::make_rounded(Value v, const RoundedForm& form) {
  made_.push_back(&form);
  const int per_row = static_cast<int>(width(v) / form.n_in);
  const NormBlock block{.x = room_.at(v),
                        .weight = 0,
                        .out = 0,
                        .rounded = room_.rounded(form),
                        .n_rows = n_rows(v),
                        .per_row = per_row,
                        .width = form.n_in,
                        .kind = kPlain,
                        .eps = 0};
  const bool is_short = form.n_in <= kSegmentElems;
  const int64_t rows = int64_t{max_rows(v)} * per_row;
  return emit({"norm", {{1, is_short ? 1 : 0}}}, block, {is_short ? div_up(rows, kWarps) : rows},
              {{all(v)}, {{block.rounded.q, room_.rounded_bytes(form)}}});
}

Lowering::Written Lowering::written(Value v, int64_t n_in, Touched& touched) {
  const RoundedForm* form = room_.fusion().only_form(v, n_in);
  if (!form || rounds_inside(v, form->n_in)) {
    touched.writes.push_back(all(v));
    return {.floats = room_.at(v)};
  }
  made_.push_back(form);
  Written out{.rounded = room_.rounded(*form)};
  touched.writes.push_back({out.rounded.q, room_.rounded_bytes(*form)});
  if (room_.fusion().is_read_as_floats(v)) {
    out.floats = room_.at(v);
    touched.writes.push_back(all(v));
  }
  return out;
}

// Norms on the way in, where another node's would be; the rest is left as it is.
Lowering::RowInput Lowering::fill_row(Value x, LinearBlock& block, Touched& touched) const {
  const Fusion& fusion = room_.fusion();
  if (const GatedHeads* heads = is_one_row() ? fusion.gated_heads(x) : nullptr) {
    const Node &norm = node(heads->norm), &act = node(heads->act);
    block.x = room_.at(norm.in[0]);
    block.norm_weight = vector(norm.in[1]);
    block.norm_eps = norm.as<NormParams>().eps;
    block.head_dim = static_cast<int>(inner(norm.out[0]));
    block.gate = room_.at(act.in[0]);
    touched.reads.insert(touched.reads.end(), {all(norm.in[0]), all(act.in[0])});
    return {true, kGatedHeads, static_cast<int>(act.as<GatedActParams>().act)};
  }
  const int norm = max_rows(x) == 1 ? fusion.foldable_norm(x, true) : -1;
  const Value from = norm >= 0 ? node(norm).in[0] : x;
  block.x = room_.at(from);
  touched.reads.push_back(all(from));
  if (norm < 0) return {};
  block.norm_weight = vector(node(norm).in[1]);
  block.norm_eps = node(norm).as<NormParams>().eps;
  return {true, kNormed};
}

// The group's input: floats, made ready on the way in; or rounded by its maker, or rounded now.
Status Lowering::fill_inputs(const ProductGroup& group, RowInput& input, LinearBlock& block, Touched& touched) {
  const Value wanted = node(group.nodes[0]).in[0], x = is_one_row() ? room_.fusion().row_source(wanted) : wanted;
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  const bool is_rounded = matrix.format->rounded_block > 0;
  const bool rounds = is_rounded && rounds_inside(x, matrix.matrix.n_in) && block.per_row == 1;
  if (rounds || !is_rounded) {
    input = fill_row(x, block, touched);
    input.makes = input.makes || rounds;
    return ok_status();
  }
  const RoundedForm* form = room_.fusion().form(x, matrix.format->rounded_block, matrix.matrix.n_in);
  ZINC_CHECK(form != nullptr);
  if (!is_made(form)) {
    if (Status s = make_rounded(x, *form); !s.ok()) return s;
  }
  block.rounded = room_.rounded(*form);
  touched.reads.push_back({block.rounded.q, room_.rounded_bytes(*form)});
  return ok_status();
}

// Matrices and results of the group's products; the sum, if there is one.
void Lowering::fill_parts(const ProductGroup& group, LinearBlock& block, Touched& touched) const {
  for (const int i : group.nodes) {
    const Node& n = node(i);
    const bool is_expert = n.op == Op::moe_linear;
    const size_t part = static_cast<size_t>(block.n_parts++);
    block.parts[part] = matrix_of(i).matrix;
    block.outs[part] = room_.at(n.out[0]);
    block.biases[part] = vector(n.in[is_expert ? 3 : 2]);
    block.expert_scales[part] = is_expert ? vector(n.in[4]) : 0;
    if (group.act < 0 && group.add < 0) touched.writes.push_back(all(n.out[0]));
  }
  if (group.act >= 0) {
    const Node& act = node(group.act);
    block.act = static_cast<int>(act.as<GatedActParams>().act);
    block.outs[0] = room_.at(act.out[0]);
    touched.writes.push_back(all(act.out[0]));
  }
  if (group.add < 0) return;
  const Value other = other_operand(group.add, node(group.nodes[0]).out[0]), sum = node(group.add).out[0];
  block.added = room_.at(other);
  block.outs[0] = room_.at(sum);
  touched.reads.push_back(all(other));
  touched.writes.push_back(all(sum));
}

// The add's operand that is not `result`.
Value Lowering::other_operand(int add, Value result) const {
  const bool is_first = room_.fusion().owner(node(add).in[0]) == room_.fusion().owner(result);
  return node(add).in[is_first ? 1 : 0];
}

// On cooperative matrices, where there are enough rows; all of a model's experts or none.
bool Lowering::on_matrices(const DeviceMatrix& matrix, bool is_expert) const {
  if (device_.capabilities().matrix_depth == 0 || matrix.format->rounded_block == 0) return false;
  return !is_expert || room_.tile_rows() == kMatrixExpertRows;
}

bool has_planes(const Capabilities& device, const PanelFormat& format, int warp_rows) {
  const std::string name(format.name);
  if (find_kernel("gemm_planes." + name).empty()) return false;
  if (find_kernel("gemm." + name).empty()) return true;
  const size_t rows = 32 * static_cast<size_t>(warp_rows), outputs = 32 * static_cast<size_t>(kWarps / warp_rows);
  constexpr size_t kLine = 16 * 9, kRoute = 256;  // bytes of a row or an output in a plane; what experts take beside
  size_t n_bytes = kLine * (rows + 2 * outputs) + 4 * outputs + 12 * rows + kRoute;
  if (format.has_minima) n_bytes += warp_rows == 2 ? 4 * outputs : 52 * outputs + 48 * rows;  // overlaid, or beside
  return n_bytes <= device.shared_bytes;
}

// Which kernel, cut how.
Lowering::ProductShape Lowering::shape_of(const ProductGroup& group, const DeviceMatrix& matrix, int64_t x_rows,
                                          const RowInput& input) const {
  const bool is_expert = node(group.nodes[0]).op == Op::moe_linear, is_gated = group.act >= 0;
  const bool is_few = x_rows <= kMaxSplitTokens;
  const std::string format(matrix.format->name);
  const int expert_mode = !is_expert ? 0 : is_few ? 1 : 2;
  if (!is_few && on_matrices(matrix, is_expert)) {
    const int warp_rows = is_expert || x_rows <= kMatrixExpertRows ? 2 : 4;  // 32 rows of activations each
    return {{(has_planes(device_.capabilities(), *matrix.format, warp_rows) ? "gemm_planes." : "gemm.") + format,
             {{1, warp_rows}, {2, device_.capabilities().matrix_depth}, {3, is_gated ? 1 : 0}, {6, expert_mode}}},
            32 * warp_rows,
            32 * (kWarps / warp_rows) / (is_gated ? 2 : 1)};
  }
  int rows = is_expert ? room_.tile_rows() : device_.tuning().product_rows;
  if (is_few) rows = is_expert || input.makes || x_rows == 1 ? 1 : x_rows <= 4 ? 4 : device_.tuning().few_rows;
  const int most = matrix.format->rounded_block > 0 ? kMaxRoundedInputs : max_float_inputs(device_.capabilities());
  const int quads = !input.makes ? 1 : matrix.matrix.n_segments * kSegmentElems <= 4096 ? 256 : most / 16;
  const int route = is_expert && is_one_row() ? room_.fusion().route_of_experts(group) : -1;
  const int n_experts = route < 0 ? 1 : static_cast<int>(div_up(width(node(route).in[0]), 32) * 32);
  // Small matrices leave most of the device without work unless warps share their panels; in floats warps must keep
  // together, to share a segment of the activations.
  const int64_t n_groups = div_up(matrix.matrix.n_out, kPanelRows * kWarps) * div_up(x_rows, rows);
  const bool shares = matrix.format->rounded_block > 0 && n_groups < 2 * processors_of(device_.capabilities());
  const bool splits = is_few || shares;
  // A few workgroups alone (a router) may have more under way: their registers are not missing elsewhere.
  const bool is_alone = matrix.format->rounded_block == 0 &&
                        4 * div_up(matrix.matrix.n_out, kPanelRows) <= processors_of(device_.capabilities());
  const Tuning& tuning = device_.tuning();
  const int pieces = rows > 1 ? 8 : is_alone ? tuning.float_pieces_alone : tuning.float_pieces;
  const int halves = splits && is_gated && 2 * matrix.matrix.n_splits <= kWarps ? 2 : 1;  // gate and up at once
  const int panel_warps = splits ? matrix.matrix.n_splits * halves : 1;
  return {{"linear." + format,
           {{1, rows},
            {2, splits ? 1 : 0},
            {3, is_gated ? 1 : 0},
            {4, input.makes ? 1 : 0},
            {5, quads},
            {6, expert_mode},
            {7, n_experts},
            {9, input.kind},
            {10, matrix.matrix.n_splits},
            {20, matrix.matrix.n_in % 4 == 0 ? 0 : 1},
            {21, input.gate_act},
            {22, pieces}}},
          rows,
          kPanelRows * (kWarps / panel_warps)};
}

// A gate's pair is one dispatch, what else there is one for each format: nothing waits between them.
Status Lowering::lower_products(const ProductGroup& group) {
  std::vector<int> rest = group.nodes;
  while (!rest.empty()) {
    const bool is_pair = group.act >= 0 && rest.size() == group.nodes.size();
    const PanelFormat* format = matrix_of(rest.front()).format;
    ProductGroup part{.nodes = {}, .act = is_pair ? group.act : -1, .add = group.add, .at = group.at};
    std::erase_if(rest, [&](int i) {
      const bool fits = is_pair ? i == group.nodes[0] || i == group.nodes[1] : matrix_of(i).format == format;
      if (fits) part.nodes.push_back(i);
      return fits;
    });
    if (Status s = lower_part(part); !s.ok()) return s;
  }
  return ok_status();
}

// Which experts: found by whoever made the route, or here, from the logits.
void Lowering::fill_experts(const ProductGroup& group, bool is_few, LinearBlock& block, Touched& touched) const {
  const Node& first = node(group.nodes[0]);
  const ExpertTiles tiles = room_.expert_tiles();
  block.expert_ids = room_.at(first.in[2]);
  block.n_used = static_cast<int>(width(first.in[2]));
  block.x_per_used = info(first.in[0]).shape.n_dims() == 1 ? 0 : 1;
  block.order = tiles.order;
  block.tiles = tiles.tiles;
  block.n_tiles = tiles.n_tiles;
  if (const int route = is_one_row() ? room_.fusion().route_of_experts(group) : -1; route >= 0) {
    const Node& n = node(route);
    block.route = route_of(route);
    touched.reads.push_back(all(n.in[0]));
    touched.writes.insert(touched.writes.end(), {all(n.out[0]), all(n.out[1])});
    return;
  }
  touched.reads.push_back(is_few ? all(first.in[2]) : Touch{tiles.order, tiles.n_bytes});
}

// Products of one format.
Status Lowering::lower_part(const ProductGroup& group) {
  const Node& first = node(group.nodes[0]);
  const bool is_expert = first.op == Op::moe_linear;
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  LinearBlock block{};
  block.n_rows = n_rows(first.in[0]);
  block.per_row = is_expert ? 1 : static_cast<int>(width(first.in[0]) / matrix.matrix.n_in);
  const int64_t x_rows = int64_t{max_rows(first.in[0])} * block.per_row;
  Touched touched;
  RowInput input;
  if (Status s = fill_inputs(group, input, block, touched); !s.ok()) return s;
  const ProductShape shape = shape_of(group, matrix, x_rows, input);
  int64_t n_tiles = div_up(x_rows, shape.rows);
  if (is_expert) {
    const bool is_few = x_rows <= kMaxSplitTokens;
    fill_experts(group, is_few, block, touched);
    n_tiles = is_few ? x_rows * block.n_used : room_.max_expert_tiles(x_rows * block.n_used, matrix.n_stack);
  }
  fill_parts(group, block, touched);
  int64_t n_blocks = 0;
  for (int part = 0; part < (group.act >= 0 ? 1 : block.n_parts); ++part) {
    n_blocks += div_up(block.parts[part].n_out, shape.outputs);
  }
  return emit(chained(shape.key, n_blocks * n_tiles), block, {n_blocks, n_tiles}, touched);
}

// What experts give, weighed and added up in one dispatch.
Status Lowering::lower_mix(const MixGroup& mix) {
  const Node &down = node(mix.down), &combine = node(mix.combine);
  const DeviceMatrix& matrix = matrix_of(mix.down);
  LinearBlock block{};
  Touched touched{{all(down.in[0]), all(down.in[2]), all(combine.in[1])}, {}};
  block.parts[0] = matrix.matrix;
  block.biases[0] = vector(down.in[3]);
  block.expert_scales[0] = vector(down.in[4]);
  block.x = room_.at(down.in[0]);
  block.expert_ids = room_.at(down.in[2]);
  block.n_used = static_cast<int>(width(down.in[2]));
  block.mix_weights = room_.at(combine.in[1]);
  Value result = combine.out[0];
  if (mix.shared >= 0) {
    const Value x = node(mix.shared).in[0], gate = node(mix.shared_act).in[0];
    block.parts[1] = matrix_of(mix.shared).matrix;
    block.last_x = room_.at(x);
    block.last_gate = room_.at(gate);
    touched.reads.insert(touched.reads.end(), {all(x), all(gate)});
    result = node(mix.shared_add).out[0];
  }
  if (mix.add >= 0) {
    const Value other = other_operand(mix.add, result);
    block.added = room_.at(other);
    touched.reads.push_back(all(other));
    result = node(mix.add).out[0];
  }
  block.outs[0] = room_.at(result);
  touched.writes.push_back(all(result));
  const int n_units = (block.n_used + (mix.shared >= 0 ? 1 : 0)) * matrix.matrix.n_segments;
  const int quads = n_units * kSegmentElems / 16;
  const int64_t n_workgroups = div_up(matrix.matrix.n_out, kPanelRows);
  return emit(chained({"mix." + std::string(matrix.format->name),
                       {{2, n_units},
                        {4, 1},
                        {5, quads},
                        {6, 1},
                        {7, 1},
                        {8, device_.tuning().mix_ahead},
                        {20, matrix.matrix.n_in % 4 == 0 ? 0 : 1}}},
                      n_workgroups),
              block, {n_workgroups}, touched);
}

}  // namespace zinc::vulkan
