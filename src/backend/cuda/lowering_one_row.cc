// Products of a step of one row: all matrices of a group in one launch of simt/product.cu.
#include <algorithm>

#include "backend/cuda/lowering.h"

namespace zinc::cuda {
namespace {

constexpr size_t kRingBytes = 84 << 10;  // of a block, so that two kernels' blocks are on a multiprocessor at once
constexpr size_t kGateBytes = simt::kWarps * simt::kMaxStages * 8 + 64;  // and room for a sum over the block
constexpr int64_t kSpreadUnits = 2;                                      // segments of floats a block takes

size_t segment_bytes(const PanelFormat& format) {
  return static_cast<size_t>(simt::kPanelRows * (format.header_bytes + simt::kSegmentGroups * format.group_bytes));
}

size_t input_bytes(const PanelFormat& format, int64_t n_segments) {
  constexpr size_t kRounded = 256 + 2 * 32, kFloats = 1024;  // simt::SharedX, or plain
  return static_cast<size_t>(n_segments) * (format.rounded_block > 0 ? kRounded : kFloats);
}

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// How many segments a warp takes one after the other if k of them share a panel.
int64_t turns(int64_t n_panels, int64_t n_units, int k) {
  return div_up(n_units, k) * div_up(n_panels, simt::kWarps / k);
}

int best_warps(int64_t n_panels, int64_t n_units) {
  int best = 8;
  for (int k : {4, 2}) {
    if (turns(n_panels, n_units, k) < turns(n_panels, n_units, best)) best = k;
  }
  return best;
}

}  // namespace

// A launch under way: its parts, and what the host has to know of them.
struct Lowering::RowLaunch {
  simt::ProductParams params{};
  std::vector<const PanelFormat*> formats;  // per part
  int64_t n_experts = 1;                    // of the grid
  int64_t n_rows = 1;                       // a block reads

  void add(const simt::ProductPart& part, const PanelFormat* format) {
    params.parts[params.n_parts++] = part;
    formats.push_back(format);
  }
  int64_t n_panels(int i) const { return div_up(params.parts[i].matrix.n_out, simt::kPanelRows); }
  int64_t n_units(int i) const {
    const simt::ProductPart& part = params.parts[i];
    return (std::max(params.n_mixed, 1) + (part.last ? 1 : 0)) * part.matrix.n_segments;
  }
  int64_t n_bytes(int i) const {
    return n_panels(i) * n_units(i) * static_cast<int64_t>(segment_bytes(*formats[static_cast<size_t>(i)]));
  }
  std::string program();
  size_t share_out(int n_multiprocessors);
};

// Each format once, in the order of their names, so that few programs are compiled.
std::string Lowering::RowLaunch::program() {
  std::vector<std::string> names;
  for (const PanelFormat* format : formats) names.emplace_back(format->name);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (int i = 0; i < params.n_parts; ++i) {
    params.parts[i].format =
        static_cast<int>(std::ranges::find(names, formats[static_cast<size_t>(i)]->name) - names.begin());
  }
  std::string all = names[0];
  for (size_t i = 1; i < names.size(); ++i) all += "+" + names[i];
  return all;
}

// Blocks and shared memory, whose size is the result.
size_t Lowering::RowLaunch::share_out(int n_multiprocessors) {
  const int64_t most_blocks = std::max<int64_t>(1, n_multiprocessors / n_experts);
  size_t x_bytes = 0, half_floats = 0, stage = 0, spread_bytes = 0;
  int64_t all_bytes = 0, n_blocks = 0, n_turns = 1;
  for (int i = 0; i < params.n_parts; ++i) all_bytes += n_bytes(i);
  for (int i = 0; i < params.n_parts; ++i) {
    simt::ProductPart& part = params.parts[i];
    const PanelFormat& format = *formats[static_cast<size_t>(i)];
    part.first_block = static_cast<int>(n_blocks);
    int64_t wanted = std::clamp<int64_t>((most_blocks * n_bytes(i) + all_bytes / 2) / all_bytes, 1, n_panels(i));
    if (part.is_spread) wanted = div_up(n_panels(i) * n_units(i), kSpreadUnits);
    part.n_blocks = static_cast<int>(wanted);
    n_blocks += wanted;
    const int64_t panels = div_up(n_panels(i), wanted);
    part.warps_per_panel = best_warps(panels, n_units(i));
    x_bytes = std::max(x_bytes, input_bytes(format, n_rows * part.matrix.n_segments));
    if (part.is_spread) {
      spread_bytes = std::max(spread_bytes, static_cast<size_t>(kSpreadUnits) * segment_bytes(format));
      continue;
    }
    half_floats =
        std::max(half_floats, static_cast<size_t>(simt::kWarps / part.warps_per_panel * n_units(i)) * simt::kPanelRows);
    if (format.rounded_block == 0) continue;  // floats are read where they lie
    stage = std::max(stage, segment_bytes(format));
    n_turns = std::max(n_turns, turns(panels, n_units(i), part.warps_per_panel));
  }
  params.stage_bytes = static_cast<int>(stage);
  params.half_floats = static_cast<int>(half_floats);
  const size_t per_stage = std::max<size_t>(1, stage * simt::kWarps);
  const int most_stages = static_cast<int>(std::min<int64_t>(n_turns, simt::kMaxStages));
  params.n_stages = std::clamp(static_cast<int>(kRingBytes / per_stage), std::min(2, most_stages), most_stages);
  params.partial_begin = static_cast<int>(round_up(kGateBytes + x_bytes, 128));
  params.ring_begin =
      static_cast<int>(round_up(static_cast<size_t>(params.partial_begin) + 2 * half_floats * sizeof(float), 128));
  return static_cast<size_t>(params.ring_begin) +
         std::max(per_stage * static_cast<size_t>(params.n_stages), spread_bytes);
}

Status Lowering::emit_row_launch(RowLaunch& launch) {
  const std::string program = launch.program();
  const size_t shared = launch.share_out(device_.n_multiprocessors());
  const simt::ProductPart& last = launch.params.parts[launch.params.n_parts - 1];
  return emit({"product", program}, "product", launch.params, last.first_block + last.n_blocks, launch.n_experts, 1,
              shared);
}

bool Lowering::is_one_row(const ProductGroup& group) const {
  const Node& first = node(group.nodes[0]);
  return is_one_row() && (first.op == Op::moe_linear || width(first.in[0]) == matrix_of(group.nodes[0]).matrix.n_in);
}

// The add's operand that is not `result`.
const float* Lowering::other_operand(int add, Value result) const {
  const bool is_first = room_.fusion().owner(node(add).in[0]) == room_.fusion().owner(result);
  return room_.floats(node(add).in[is_first ? 1 : 0]);
}

simt::ProductPart Lowering::product_part(const ProductGroup& group, size_t i) const {
  const Node& n = node(group.nodes[i]);
  const bool is_expert = n.op == Op::moe_linear;
  const auto bias = [&](const Node& of) { return vector(of.in[is_expert ? 3 : 2]); };
  const auto scale = [&](const Node& of) { return is_expert ? vector(of.in[4]) : nullptr; };
  simt::ProductPart part{};
  part.matrix = matrix_of(group.nodes[i]).matrix;
  part.out = room_.floats(n.out[0]);
  part.bias = bias(n);
  part.expert_scale = scale(n);
  part.act = simt::kNoAct;
  if (group.act >= 0 && i == 0) {
    const Node& up = node(group.nodes[1]);
    part.last = matrix_of(group.nodes[1]).matrix.bytes;
    part.last_bias = bias(up);
    part.last_scale = scale(up);
    part.act = static_cast<int>(node(group.act).as<GatedActParams>().act);
    part.out = room_.floats(node(group.act).out[0]);
  }
  if (group.add >= 0) {
    part.added = other_operand(group.add, n.out[0]);
    part.out = room_.floats(node(group.add).out[0]);
  }
  if (!is_expert && room_.fusion().route_of_logits(group.nodes[i]) >= 0) {
    part.is_spread = 1;
    part.out = room_.router_partial();
    part.bias = nullptr;
  }
  if (!is_expert && room_.fusion().is_shared_gate(group.nodes[i])) {
    part.is_spread = 1;
    part.out = room_.gate_partial();
  }
  return part;
}

// Rounded by its maker where one form does for all, else made from floats by each block, with norms before it.
simt::RowSource Lowering::row_source(const ProductGroup& group) const {
  const Fusion& fusion = room_.fusion();
  const Value x = fusion.row_source(node(group.nodes[0]).in[0]);
  simt::RowSource source{};
  source.x = room_.floats(x);
  if (const GatedHeads* heads = fusion.gated_heads(x)) {
    const Node &norm = node(heads->norm), &act = node(heads->act);
    source.x = room_.floats(norm.in[0]);
    source.norm_weight = vector(norm.in[1]);
    source.norm_eps = norm.as<zinc::NormParams>().eps;
    source.head_dim = static_cast<int>(inner(norm.out[0]));
    source.gate = room_.floats(act.in[0]);
    source.gate_act = static_cast<int>(act.as<GatedActParams>().act);
    return source;
  }
  if (const int norm = fusion.foldable_norm(x, true); norm >= 0) {
    source.x = room_.floats(node(norm).in[0]);
    source.norm_weight = vector(node(norm).in[1]);
    source.norm_eps = node(norm).as<zinc::NormParams>().eps;
    source.is_normed = 1;
    return source;
  }
  source.rounded = made_form(x, matrix_of(group.nodes[0]));
  return source;
}

// The form its maker left instead of floats, if it did.
simt::Rounded Lowering::made_form(Value x, const DeviceMatrix& matrix) const {
  const Fusion& fusion = room_.fusion();
  const RoundedForm* form = fusion.form(x, matrix.format->rounded_block, matrix.matrix.n_in);
  if (!form || fusion.is_read_as_floats(x) || std::ranges::find(made_, form) == made_.end()) return {};
  return room_.rounded(*form);
}

// How the group finds its experts, if the router's segments are all there is yet.
simt::RouteSource Lowering::route_source(int route) const {
  const Node& n = node(route);
  const MoeRouteParams& params = n.as<MoeRouteParams>();
  const Node& router = node(room_.fusion().maker(n.in[0]));
  const simt::Matrix& matrix = weights_.matrix(info(router.in[1]).name)->matrix;
  return {.partial = room_.router_partial(),
          .bias = vector(router.in[2]),
          .ids = room_.ints(n.out[0]),
          .weights = room_.floats(n.out[1]),
          .n_segments = matrix.n_segments,
          .n_experts = matrix.n_out,
          .n_used = static_cast<int>(params.n_used),
          .mode = static_cast<int>(params.weights),
          .scale = params.scale};
}

Status Lowering::lower_one_row(const ProductGroup& group) {
  const Node& first = node(group.nodes[0]);
  RowLaunch launch;
  launch.params.source = row_source(group);
  if (first.op == Op::moe_linear) {
    launch.params.expert_ids = room_.ints(first.in[2]);
    launch.params.x_per_used = info(first.in[0]).shape.n_dims() == 1 ? 0 : 1;
    launch.n_experts = width(first.in[2]);
    if (const int route = room_.fusion().route_of_experts(group); route >= 0) {
      launch.params.route = route_source(route);
    }
  }
  for (size_t i = 0; i < group.nodes.size(); ++i) {
    if (group.act >= 0 && i == 1) continue;  // the gate's part has it
    launch.add(product_part(group, i), matrix_of(group.nodes[i]).format);
  }
  return emit_row_launch(launch);
}

// What experts give, weighed and added up in one launch.
Status Lowering::lower_mix(const MixGroup& mix) {
  const Node &down = node(mix.down), &combine = node(mix.combine);
  RowLaunch launch;
  simt::ProductParams& params = launch.params;
  params.source.x = room_.floats(down.in[0]);
  params.source.rounded = made_form(down.in[0], matrix_of(mix.down));
  params.expert_ids = room_.ints(down.in[2]);
  params.mix_weights = room_.floats(combine.in[1]);
  params.n_mixed = static_cast<int>(width(down.in[2]));
  launch.n_rows = params.n_mixed;
  simt::ProductPart part{};
  part.matrix = matrix_of(mix.down).matrix;
  part.bias = vector(down.in[3]);
  part.expert_scale = vector(down.in[4]);
  part.act = simt::kNoAct;
  Value result = combine.out[0];
  if (mix.shared >= 0) {
    part.last = matrix_of(mix.shared).matrix.bytes;
    params.source.last_x = room_.floats(node(mix.shared).in[0]);
    const Value gate = node(mix.shared_act).in[0];
    const int maker = room_.fusion().maker(gate);
    const bool is_spread = maker >= 0 && node(maker).op == Op::linear && room_.fusion().is_shared_gate(maker);
    params.shared_gate = is_spread ? room_.gate_partial() : room_.floats(gate);
    params.n_gates = is_spread ? matrix_of(maker).matrix.n_segments : 1;
    ++launch.n_rows;
    result = node(mix.shared_add).out[0];
  }
  if (mix.add >= 0) {
    part.added = other_operand(mix.add, result);
    result = node(mix.add).out[0];
  }
  part.out = room_.floats(result);
  launch.add(part, matrix_of(mix.down).format);
  return emit_row_launch(launch);
}

}  // namespace zinc::cuda
