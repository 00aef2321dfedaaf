// Products of a step of one row: all matrices of a group in one launch of simt/product.cu, which is compiled for them.
#include <algorithm>
#include <functional>
#include <span>

#include "backend/cuda/lowering.h"

namespace zinc::cuda {
namespace {

int segment_bytes(const PanelFormat& format) {
  return simt::panel_segment_bytes(format.header_bytes, format.group_bytes);
}

std::string text_of(const simt::ProductShape& s) {
  return fmt::format(
      "inline constexpr ProductShape kShape = {{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, "
      "{}, {}, {}, {}, {}, {}, {}}};",
      s.n_in, s.input, s.head_dim, s.gate_act, s.act, s.n_used, s.n_mixed, s.has_last, s.n_gates, s.n_experts,
      s.route_mode, s.n_parts, s.n_pairs, s.n_ranks, s.most_panels, s.x_bytes, s.partial_floats, s.ring_bytes,
      s.n_route_segments, s.starts_next_late, s.is_early, s.finds_early, s.spreads_other, s.n_panels);
}

}  // namespace

// A launch under way: its parts, and what the host has to know of them.
struct Lowering::RowLaunch {
  struct Member {
    simt::ProductPart part;
    const PanelFormat* format;
    bool is_spread;
  };
  simt::ProductShape shape{};
  simt::ProductParams params{};
  std::vector<Member> members;
  int64_t n_blocks = 0;

  explicit RowLaunch(int n_in) {
    shape.n_in = n_in;
    shape.act = simt::kNoAct;
  }
  void add(const simt::ProductPart& part, const PanelFormat* format, bool is_spread = false) {
    members.push_back({part, format, is_spread});
  }
  // All that is left to decide. most_ranks: blocks of a cluster, at most.
  void finish(int n_multiprocessors, int most_ranks);
  KernelProgram program() const;
  size_t shared_bytes() const;
  std::vector<std::span<const float>> written() const;  // floats of all parts, and its row's sum

 private:
  void make_classes();
  void choose_pairs();
  void choose_ranks(int n_multiprocessors, int most_ranks);
  bool is_one_batch(int n_ranks) const;
  int most_panels() const;  // of a cluster
  // The bytes that pass through the busiest block.
  int64_t share_blocks(int n_multiprocessors, int n_ranks);
  void size_memory();
  std::span<const simt::ProductClass> classes() const {
    return {params.classes, static_cast<size_t>(params.n_classes)};
  }
  std::vector<const PanelFormat*> formats() const;  // each once, in the order of their names
  const PanelFormat& format_of(const simt::ProductClass& c) const {
    return *members[static_cast<size_t>(c.first_part)].format;
  }
};

std::vector<const PanelFormat*> Lowering::RowLaunch::formats() const {
  std::vector<const PanelFormat*> all;
  for (const Member& member : members) all.push_back(member.format);
  std::ranges::sort(all, {}, [](const PanelFormat* f) { return f->name; });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

void Lowering::RowLaunch::make_classes() {
  const std::vector<const PanelFormat*> all = formats();
  std::ranges::stable_sort(members, {}, [](const Member& m) { return std::pair(m.format->name, m.is_spread); });
  for (const Member& member : members) {
    simt::ProductPart part = member.part;
    const int64_t n_panels = div_up(part.n_out, simt::kPanelRows) *
                             (member.is_spread ? simt::segments_of(shape.n_in) : std::max(1, shape.n_used));
    part.n_panels = static_cast<int>(n_panels / std::max(1, shape.n_used));
    const int i = params.n_parts++;
    params.parts[i] = part;
    const bool is_new = i == 0 || members[static_cast<size_t>(i) - 1].format != member.format ||
                        members[static_cast<size_t>(i) - 1].is_spread != member.is_spread;
    if (is_new) {
      const auto format = std::ranges::find(all, member.format) - all.begin();
      params.classes[params.n_classes++] = {.format = static_cast<int>(format),
                                            .is_spread = member.is_spread ? 1 : 0,
                                            .first_part = i,
                                            .first_block = 0,
                                            .n_panels = 0,
                                            .each = 0,
                                            .n_more = 0};
    }
    params.classes[params.n_classes - 1].n_panels += static_cast<int>(n_panels);
  }
}

// So many that each has two segments of the widest format on their way.
void Lowering::RowLaunch::choose_pairs() {
  constexpr int kFewest = 4;
  shape.ring_bytes = 84 << 10;
  int widest = 1;
  for (const Member& member : members) {
    if (!member.is_spread && member.format->rounded_block > 0) widest = std::max(widest, segment_bytes(*member.format));
  }
  // A wide row that is normed stands in registers: fewer warps have more of them.
  const int with_all = shape.input == simt::kSummedRow ? 4096 : 6144,
            with_six = shape.input == simt::kSummedRow ? 6144 : 8192;
  const int most = !simt::is_normed(shape.input) || shape.n_in <= with_all ? simt::kMaxPairs
                   : shape.n_in <= with_six                                ? 6
                                                                           : kFewest;
  shape.n_pairs = std::clamp(shape.ring_bytes / (2 * widest), kFewest, most);
}

// One cluster after the other to the class whose blocks have most to read; all multiprocessors get a block. What is
// spread takes half of them at most, where there is something else.
int64_t Lowering::RowLaunch::share_blocks(int n_multiprocessors, int n_ranks) {
  const size_t n_classes = static_cast<size_t>(params.n_classes);
  std::vector<int64_t> n_clusters(n_classes), loads(n_classes);
  int64_t n_left = n_multiprocessors / n_ranks;
  const auto give = [&](size_t i, int64_t n) {
    const simt::ProductClass& c = params.classes[i];
    n_clusters[i] += n;
    n_left -= n;
    if (c.is_spread) return;
    loads[i] = div_up(c.n_panels, n_clusters[i]) * div_up(simt::units_of(shape), n_ranks) * segment_bytes(format_of(c));
  };
  const auto is_spread = [](const simt::ProductClass& c) { return c.is_spread != 0; };
  const int64_t n_spread = std::ranges::count_if(classes(), is_spread);
  const int64_t most =
      n_spread == params.n_classes ? n_left : std::max<int64_t>(1, n_left / (2 * std::max<int64_t>(1, n_spread)));
  for (size_t i = 0; i < n_classes; ++i) {
    const simt::ProductClass& c = params.classes[i];
    give(i, c.is_spread ? std::min(div_up(c.n_panels, simt::kSpreadUnits * n_ranks), most) : 1);
  }
  while (n_left > 0) give(static_cast<size_t>(std::ranges::max_element(loads) - loads.begin()), 1);
  n_blocks = 0;
  for (size_t i = 0; i < n_classes; ++i) {
    simt::ProductClass& c = params.classes[i];
    c.first_block = static_cast<int>(n_blocks);
    const int64_t n_shares = n_clusters[i] * (c.is_spread ? n_ranks : 1);
    c.each = static_cast<int>(c.n_panels / n_shares);
    c.n_more = static_cast<int>(c.n_panels % n_shares);
    n_blocks += n_clusters[i] * n_ranks;
  }
  return std::ranges::max(loads);
}

int Lowering::RowLaunch::most_panels() const {
  int most = 1;
  for (const simt::ProductClass& c : classes()) {
    if (!c.is_spread) most = std::max(most, c.each + (c.n_more > 0 ? 1 : 0));
  }
  return most;
}

// Blocks of a cluster tell each other once that their sums are there.
bool Lowering::RowLaunch::is_one_batch(int n_ranks) const {
  simt::ProductShape tried = shape;
  tried.n_ranks = n_ranks;
  tried.most_panels = most_panels();
  return simt::batch_panels(tried) == tried.most_panels;
}

// Larger clusters where that leaves no block with more to do, and each with fewer segments of the row to prepare. Where
// a block's pairs take a unit each, and all are in its ring beforehand, another block would only have to be waited for.
void Lowering::RowLaunch::choose_ranks(int n_multiprocessors, int most_ranks) {
  constexpr int kFewSegments = 4;
  shape.n_ranks = 1;
  int64_t least = share_blocks(n_multiprocessors, 1);
  if (least == 0) return;  // all is spread
  if (most_panels() * simt::units_of(shape) <= shape.n_pairs && least <= shape.ring_bytes) return;
  for (int n = 2; n <= std::min({most_ranks, simt::units_of(shape), n_multiprocessors}); n *= 2) {
    const int64_t most = share_blocks(n_multiprocessors, n);
    if (most > least || (most == least && simt::segments_of(shape.n_in) < n * kFewSegments)) continue;
    if (!is_one_batch(n)) continue;
    least = most;
    shape.n_ranks = n;
  }
  share_blocks(n_multiprocessors, shape.n_ranks);
}

void Lowering::RowLaunch::size_memory() {
  // Two launches' blocks are on a multiprocessor, one of them with a little over half of its memory (Lowering::add).
  const int half = (112 << 10) - 512 - 8 * shape.n_experts;
  shape.most_panels = most_panels();
  for (const simt::ProductClass& c : classes()) {
    const int n_inputs = c.is_spread ? simt::segments_of(shape.n_in) : simt::most_rank_inputs(shape);
    const bool is_float = format_of(c).rounded_block == 0;
    shape.x_bytes = std::max(shape.x_bytes, n_inputs * simt::row_segment_bytes(is_float));
  }
  const int n_panels = simt::batch_panels(shape), n_halves = n_panels < shape.most_panels ? 2 : 1;
  shape.partial_floats = n_halves * n_panels * simt::units_of(shape) * simt::kPanelRows / shape.n_ranks;
  shape.ring_bytes = std::max(shape.ring_bytes / 2, std::min(shape.ring_bytes, half - simt::room_of(shape).ring));
}

void Lowering::RowLaunch::finish(int n_multiprocessors, int most_ranks) {
  make_classes();
  shape.n_parts = params.n_parts;
  shape.n_panels = shape.n_used > 0 ? params.parts[0].n_panels : 0;
  choose_pairs();
  choose_ranks(n_multiprocessors, most_ranks);
  size_memory();
}

KernelProgram Lowering::RowLaunch::program() const {
  std::string names;
  for (const PanelFormat* format : formats()) {
    if (!names.empty()) names += '+';
    names += format->name;
  }
  return {"product", names, text_of(shape)};
}

size_t Lowering::RowLaunch::shared_bytes() const {
  int ring = 0;
  for (const Member& member : members) {
    const int bytes = segment_bytes(*member.format);
    if (member.is_spread) {
      ring = std::max(ring, simt::kSpreadUnits * bytes);
    } else if (member.format->rounded_block > 0) {
      ring = std::max(ring, simt::slots_of(shape, bytes) * bytes);
    }
  }
  return static_cast<size_t>(simt::room_of(shape).ring + ring);
}

std::vector<std::span<const float>> Lowering::RowLaunch::written() const {
  std::vector<std::span<const float>> all;
  for (const Member& member : members) {
    const int n_rows = member.is_spread ? simt::segments_of(shape.n_in) : std::max(1, shape.n_used);
    all.emplace_back(member.part.out, static_cast<size_t>(n_rows) * static_cast<size_t>(member.part.n_out));
  }
  if (params.source.sum) all.emplace_back(params.source.sum, static_cast<size_t>(shape.n_in));
  return all;
}

bool Lowering::LateStart::writes_to(std::span<const float> row) const {
  return std::ranges::any_of(written, [&](std::span<const float> part) {
    const std::less<> is_before;
    return is_before(part.data(), row.data() + row.size()) && is_before(row.data(), part.data() + part.size());
  });
}

Status Lowering::emit_row_launch(RowLaunch& launch) {
  constexpr int kMostRanks = 2;  // fours cannot be had from all multiprocessors
  launch.finish(device_.n_multiprocessors(), device_.has_clusters() ? kMostRanks : 1);
  Launch made = Launch::of(nullptr, launch.params, 1);
  made.threads = static_cast<unsigned>(simt::product_threads(launch.shape));
  made.cluster = static_cast<unsigned>(launch.shape.n_ranks);
  if (Status s = add(launch.program(), "product", made, launch.n_blocks, 1, 1, launch.shared_bytes()); !s.ok())
    return s;
  if (launch.shape.starts_next_late != 0) late_start_ = LateStart{launch.written(), launch.params.route.ids};
  return ok_status();
}

// Experts with rows of their own are not: only a mix takes them.
bool Lowering::is_one_row(const ProductGroup& group) const {
  if (!is_one_row()) return false;
  const Node& first = node(group.nodes[0]);
  if (first.op == Op::moe_linear) return info(first.in[0]).shape.n_dims() == 1 && width(first.in[2]) <= simt::kMaxUsed;
  return width(first.in[0]) == matrix_of(group.nodes[0]).matrix.n_in;
}

// The add's operand that is not `result`.
const float* Lowering::other_operand(int add, Value result) const {
  const bool is_first = room_.fusion().owner(node(add).in[0]) == room_.fusion().owner(result);
  return room_.floats(node(add).in[is_first ? 1 : 0]);
}

bool Lowering::is_spread(int i) const {
  const Fusion& fusion = room_.fusion();
  return node(i).op == Op::linear && (fusion.route_of_logits(i) >= 0 || fusion.is_shared_gate(i));
}

// Node i of the group; with its gate's other matrix if it is the first of two.
simt::ProductPart Lowering::product_part(const ProductGroup& group, size_t i) const {
  const Node& n = node(group.nodes[i]);
  const bool is_expert = n.op == Op::moe_linear;
  const auto bias = [&](const Node& of) { return vector(of.in[is_expert ? 3 : 2]); };
  const auto scale = [&](const Node& of) { return is_expert ? vector(of.in[4]) : nullptr; };
  const simt::Matrix& matrix = matrix_of(group.nodes[i]).matrix;
  simt::ProductPart part{};
  part.bytes = matrix.bytes;
  part.matrix_bytes = matrix.matrix_bytes;
  part.n_out = matrix.n_out;
  part.out = room_.floats(n.out[0]);
  part.bias = bias(n);
  part.expert_scale = scale(n);
  if (group.halves >= 0) {
    part.n_out = matrix.n_out / 2;
    part.last = matrix.bytes + part.n_out / simt::kPanelRows * matrix.panel_bytes;
    part.last_scale = part.expert_scale;
    part.out = room_.floats(node(group.halves).out[0]);
  } else if (group.act >= 0 && i == 0) {
    const Node& up = node(group.nodes[1]);
    part.last = matrix_of(group.nodes[1]).matrix.bytes;
    part.last_bias = bias(up);
    part.last_scale = scale(up);
    part.out = room_.floats(node(group.act).out[0]);
  }
  if (group.add >= 0) {
    part.added = other_operand(group.add, n.out[0]);
    part.out = room_.floats(node(group.add).out[0]);
  }
  if (is_spread(group.nodes[i])) {
    const bool is_router = room_.fusion().route_of_logits(group.nodes[i]) >= 0;
    part.out = is_router ? room_.router_partial() : room_.gate_partial();
    part.bias = nullptr;
  }
  return part;
}

// Rounded by its maker where one form does for all, else made from floats by each block, with norms before it.
void Lowering::fill_source(const ProductGroup& group, RowLaunch& launch) const {
  const Fusion& fusion = room_.fusion();
  const Value x = fusion.row_source(node(group.nodes[0]).in[0]);
  simt::RowSource& source = launch.params.source;
  source.x = room_.floats(x);
  if (const GatedHeads* heads = fusion.gated_heads(x)) {
    const Node &norm = node(heads->norm), &act = node(heads->act);
    source.x = room_.floats(norm.in[0]);
    source.norm_weight = vector(norm.in[1]);
    source.norm_eps = norm.as<zinc::NormParams>().eps;
    source.gate = room_.floats(act.in[0]);
    launch.shape.input = simt::kHeadsRow;
    launch.shape.head_dim = static_cast<int>(inner(norm.out[0]));
    launch.shape.gate_act = static_cast<int>(act.as<GatedActParams>().act);
  } else if (const int norm = fusion.foldable_norm(x, true); norm >= 0) {
    source.x = room_.floats(node(norm).in[0]);
    source.norm_weight = vector(node(norm).in[1]);
    source.norm_eps = node(norm).as<zinc::NormParams>().eps;
    launch.shape.input = simt::kNormedRow;
  } else {
    source.rounded = made_form(x, matrix_of(group.nodes[0]));
    launch.shape.input = source.rounded.q ? simt::kRoundedRow : simt::kPlainRow;
  }
}

// The residual's sum that the first launch makes of its row, for itself and for all who come later.
void Lowering::fill_sum(const ProductGroup& group, RowLaunch& launch) const {
  const AddNormed* sum = room_.fusion().add_normed_in(group);
  if (!sum) return;
  const Node& norm = node(sum->norms[0]);
  simt::RowSource& source = launch.params.source;
  source.sum = room_.floats(node(sum->at).out[0]);
  source.x = room_.floats(norm.in[0]);
  source.sum_weight = vector(norm.in[1]);
  source.sum_eps = norm.as<zinc::NormParams>().eps;
  source.residual = other_operand(sum->add, norm.out[0]);
  source.scale = sum->mul >= 0 ? vector(node(sum->mul).in[1]) : nullptr;
  launch.shape.input = simt::kSummedRow;
}

// The form its maker left instead of floats, if it did.
simt::Rounded Lowering::made_form(Value x, const DeviceMatrix& matrix) const {
  const Fusion& fusion = room_.fusion();
  const RoundedForm* form = fusion.form(x, matrix.format->rounded_block, matrix.matrix.n_in);
  if (!form || fusion.is_read_as_floats(x) || std::ranges::find(made_, form) == made_.end()) return {};
  return room_.rounded(*form);
}

// How the launch finds its experts: the router's segments are all there is yet.
void Lowering::fill_route(int route, RowLaunch& launch) const {
  const Node& n = node(route);
  const MoeRouteParams& params = n.as<MoeRouteParams>();
  const Node& router = node(room_.fusion().maker(n.in[0]));
  launch.shape.n_experts = weights_.matrix(info(router.in[1]).name)->matrix.n_out;
  launch.shape.n_route_segments = simt::segments_of(weights_.matrix(info(router.in[1]).name)->matrix.n_in);
  launch.shape.route_mode = static_cast<int>(params.weights);
  launch.params.route = {.partial = room_.router_partial(),
                         .bias = vector(router.in[2]),
                         .ids = room_.ints(n.out[0]),
                         .weights = room_.floats(n.out[1]),
                         .scale = params.scale};
}

// The gate's pair and what is spread, with a router that comes later, is one launch, what else there is another;
// experts' matrices one each.
Status Lowering::lower_one_row(const ProductGroup& group) {
  const Node& first = node(group.nodes[0]);
  const bool is_expert = first.op == Op::moe_linear;
  std::vector<size_t> rest;
  for (size_t i = 0; i < group.nodes.size(); ++i) {
    if (group.act < 0 || i != 1) rest.push_back(i);
  }
  for (bool is_first = true; !rest.empty(); is_first = false) {
    RowLaunch launch(matrix_of(group.nodes[0]).matrix.n_in);
    fill_source(group, launch);
    if (is_first) fill_sum(group, launch);
    const bool has_gate = group.act >= 0 && is_first;
    if (has_gate) {
      launch.shape.act = static_cast<int>(node(group.act).as<GatedActParams>().act);
      launch.shape.has_last = 1;
    }
    if (is_expert) {
      launch.params.expert_ids = room_.ints(first.in[2]);
      launch.shape.n_used = static_cast<int>(width(first.in[2]));
      const int route = room_.fusion().route_of_experts(group);
      if (route >= 0 && is_first) {
        fill_route(route, launch);
        const size_t n_logits = static_cast<size_t>(launch.shape.n_experts * launch.shape.n_route_segments);
        const std::span logits(launch.params.route.partial, n_logits);
        launch.shape.finds_early = late_start_ && !late_start_->writes_to(logits) ? 1 : 0;
        router_beside_ = nullptr;
        const bool has_floats = launch.shape.input == simt::kNormedRow || launch.shape.input == simt::kPlainRow;
        const std::span row(launch.params.source.x, static_cast<size_t>(launch.shape.n_in));
        const bool is_row_there = late_start_ && !late_start_->writes_to(row);
        launch.shape.is_early = is_row_there && has_floats && launch.shape.n_in % 8 == 0 ? 1 : 0;
        launch.shape.starts_next_late = 1;
      }
    }
    std::erase_if(rest, [&](size_t i) {
      const int member = group.nodes[i];
      const bool fits = launch.members.empty() || (!is_expert && (!has_gate || is_spread(member)));
      if (fits) launch.add(product_part(group, i), matrix_of(member).format, is_spread(member));
      if (fits && room_.fusion().route_of_logits(member) >= 0) launch.shape.starts_next_late = 1;
      return fits;
    });
    if (router_beside_) launch.shape.starts_next_late = 1;  // experts may then read the logits before they wait
    if (has_gate && !is_expert) add_router_beside(group, launch);
    if (Status s = emit_row_launch(launch); !s.ok()) return s;
  }
  return ok_status();
}

// A router of the same width further on, whose row is there already: that of the residual's sum, with a norm of its
// own. Nothing in between has experts, whose logits lie in the same place.
const ProductGroup* Lowering::find_router_beside(const ProductGroup& gate) const {
  const Fusion& fusion = room_.fusion();
  for (int i = gate.at + 1; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op == Op::moe_route || node(i).op == Op::moe_linear || fusion.mix_at(i)) return nullptr;
    const ProductGroup* router = fusion.products_at(i);
    if (!router || router->nodes.size() > 1 || fusion.route_of_logits(router->nodes[0]) < 0) continue;
    const Value x = node(router->nodes[0]).in[0];
    const int maker = fusion.maker(x);
    const AddNormed* sum = maker >= 0 && maker < gate.at ? fusion.add_normed_at(maker) : nullptr;
    const bool is_there = sum && sum->by_products_at < gate.at;
    return is_there && matrix_of(router->nodes[0]).matrix.n_in == matrix_of(gate.nodes[0]).matrix.n_in ? router
                                                                                                       : nullptr;
  }
  return nullptr;
}

// It would be a launch of its own.
void Lowering::add_router_beside(const ProductGroup& gate, RowLaunch& launch) {
  if (launch.shape.input == simt::kSummedRow) return;  // each block leaves a part of the sum, a router's would not
  const auto is_spread = [](const RowLaunch::Member& m) { return m.is_spread; };
  if (std::ranges::any_of(launch.members, is_spread)) return;
  router_beside_ = find_router_beside(gate);
  if (!router_beside_) return;
  const int router = router_beside_->nodes[0];
  launch.add(product_part(*router_beside_, 0), matrix_of(router).format, true);
  launch.params.spread_x = room_.floats(node(router).in[0]);
  launch.shape.spreads_other = 1;
}

// What experts give, weighed and added up in one launch.
Status Lowering::lower_mix(const MixGroup& mix) {
  const Node &down = node(mix.down), &combine = node(mix.combine);
  const simt::Matrix& matrix = matrix_of(mix.down).matrix;
  RowLaunch launch(matrix.n_in);
  simt::ProductParams& params = launch.params;
  params.source.x = room_.floats(down.in[0]);
  params.source.rounded = made_form(down.in[0], matrix_of(mix.down));
  launch.shape.input = params.source.rounded.q ? simt::kRoundedRow : simt::kPlainRow;
  params.expert_ids = room_.ints(down.in[2]);
  params.mix_weights = room_.floats(combine.in[1]);
  launch.shape.n_mixed = static_cast<int>(width(down.in[2]));
  // Behind the experts' launch, which found them by itself: the router's logits are complete when this one starts.
  if (late_start_ && late_start_->found_experts == params.expert_ids) {
    fill_route(room_.fusion().maker(down.in[2]), launch);
    launch.shape.is_early = 1;
  }
  simt::ProductPart part{};
  part.bytes = matrix.bytes;
  part.matrix_bytes = matrix.matrix_bytes;
  part.n_out = matrix.n_out;
  part.bias = vector(down.in[3]);
  part.expert_scale = vector(down.in[4]);
  Value result = combine.out[0];
  if (mix.shared >= 0) {
    part.last = matrix_of(mix.shared).matrix.bytes;
    params.source.last_x = room_.floats(node(mix.shared).in[0]);
    const Value gate = node(mix.shared_act).in[0];
    const int maker = room_.fusion().maker(gate);
    const bool is_made = maker >= 0 && is_spread(maker);
    params.shared_gate = is_made ? room_.gate_partial() : room_.floats(gate);
    launch.shape.n_gates = is_made ? matrix_of(maker).matrix.n_segments : 1;
    launch.shape.has_last = 1;
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
