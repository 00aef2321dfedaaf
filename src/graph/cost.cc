#include "graph/cost.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "graph/dependencies.h"

namespace zinc {
namespace {

// FLOPs per element, for ops with a constant amount of work per element.
constexpr double kNormFlops = 4;      // square, sum, scale, weight
constexpr double kRopePairFlops = 6;  // four multiplications, two additions
constexpr double kSoftmaxFlops = 4;   // difference, exponential, sum, quotient
constexpr double kGatedActFlops = 6;  // negate, exponential, sum, quotient, two multiplications
constexpr double kSiluFlops = 5;
constexpr double kSoftcapFlops = 3;
constexpr double kDeltaFlops = 7;  // per state element: decay; prediction, update and read, two each

struct Context {
  const Graph& graph;
  const BatchShape& step;

  const Shape& shape(Value v) const { return graph.info(v).shape; }
  double rows(Value v) const {
    return static_cast<double>(graph.info(v).rows == Rows::outputs ? step.n_seqs : step.n_tokens);
  }
  double elems(Value v) const { return rows(v) * static_cast<double>(shape(v).elems()); }
  double weight_bytes(Value v) const { return v ? static_cast<double>(graph.info(v).weight.bytes.size()) : 0; }
};

constexpr double kActivationBytes = 4;  // f32 and i32

// Inputs read once, outputs written once.
Cost base_cost(const Node& node, const Context& c) {
  Cost cost;
  for (Value v : node.in) {
    if (!v) continue;
    if (c.graph.info(v).is_weight()) {
      cost.weight_bytes += c.weight_bytes(v);
    } else {
      cost.activation_read_bytes += c.elems(v) * kActivationBytes;
    }
  }
  for (Value v : node.out) {
    if (v) cost.activation_written_bytes += c.elems(v) * kActivationBytes;
  }
  return cost;
}

void refine_embed(const Node& node, const Context& c, Cost& cost) {  // only the tokens' rows
  const TensorView& table = c.graph.info(node.in[0]).weight;
  const size_t bytes = row_bytes(*table.format, static_cast<size_t>(table.shape.inner()));
  cost.weight_bytes = static_cast<double>(bytes) * c.rows(node.out[0]);
}

void refine_hidden_in(const Node&, const Context&, Cost& cost) {
  cost.activation_read_bytes = cost.activation_written_bytes;
}

void refine_linear(const Node& node, const Context& c, Cost& cost) {
  const double n_in = static_cast<double>(c.shape(node.in[1])[1]);
  cost.flops = c.elems(node.out[0]) * (2 * n_in + (node.in[2] ? 1 : 0));
}

void refine_norm(const Node& node, const Context& c, Cost& cost) { cost.flops = kNormFlops * c.elems(node.out[0]); }

void refine_rope(const Node& node, const Context& c, Cost& cost) {
  const double n_heads = static_cast<double>(c.shape(node.in[0])[0]);
  const double n_pairs = static_cast<double>(node.as<RopeParams>().n_dims / 2);
  cost.flops = kRopePairFlops * c.rows(node.in[0]) * n_heads * n_pairs;
}

// Positions that `n` tokens of one sequence after `depth` others attend to.
struct AttendedPositions {
  double positions = 0;  // distinct positions
  double pairs = 0;      // (query, position)
};
AttendedPositions attended_positions(double n, double depth, double window) {
  if (n == 0) return {};
  if (window == 0) return {depth + n, n * depth + n * (n + 1) / 2};
  const double n_growing = std::clamp(window - depth, 0.0, n);  // queries whose window is not full
  return {std::min(depth + n, window + n - 1),
          n_growing * depth + n_growing * (n_growing + 1) / 2 + (n - n_growing) * window};
}

void refine_attention(const Node& node, const Context& c, Cost& cost) {
  const AttentionParams& params = node.as<AttentionParams>();
  const AttentionCache& kv = c.graph.caches()[static_cast<size_t>(params.cache_layer)].attention;
  const double position_bytes = static_cast<double>(kv.kv_heads) *
                                static_cast<double>(row_bytes(*c.step.kv_format, static_cast<size_t>(kv.k_dim)) +
                                                    row_bytes(*c.step.kv_format, static_cast<size_t>(kv.v_dim)));
  const int64_t n_longer = c.step.n_tokens % c.step.n_seqs, n = c.step.n_tokens / c.step.n_seqs;
  const double depth = static_cast<double>(c.step.depth), window = static_cast<double>(params.window);
  const AttendedPositions shorter = attended_positions(static_cast<double>(n), depth, window);
  const AttendedPositions longer = attended_positions(static_cast<double>(n + 1), depth, window);
  const double n_long = static_cast<double>(n_longer), n_short = static_cast<double>(c.step.n_seqs - n_longer);
  if (node.in[1]) cost.cache_written_bytes = static_cast<double>(c.step.n_tokens) * position_bytes;
  cost.cache_read_bytes = (n_short * shorter.positions + n_long * longer.positions) * position_bytes;
  const double n_scores =
      (n_short * shorter.pairs + n_long * longer.pairs) * static_cast<double>(c.shape(node.in[0])[0]);
  const double per_score =
      2.0 * (kv.k_dim + kv.v_dim) + 1 + kSoftmaxFlops + (params.softcap > 0 ? kSoftcapFlops : 0);  // 1: the scale
  cost.flops = n_scores * per_score;
}

void refine_gated_act(const Node& node, const Context& c, Cost& cost) {
  cost.flops = kGatedActFlops * c.elems(node.out[0]);
}

void refine_moe_route(const Node& node, const Context& c, Cost& cost) {
  cost.flops = kSoftmaxFlops * c.elems(node.in[0]);
}

void refine_moe_linear(const Node& node, const Context& c, Cost& cost) {
  const Shape& weight = c.shape(node.in[1]);
  const int64_t n_used = c.shape(node.in[2])[0];
  const double share =
      expected_experts(weight[0], n_used, c.step.n_tokens) / static_cast<double>(std::max<int64_t>(1, weight[0]));
  cost.weight_bytes *= share;
  const double n_extra = (node.in[3] ? 1 : 0) + (node.in[4] ? 1 : 0);
  cost.flops = c.elems(node.out[0]) * (2 * static_cast<double>(weight[2]) + n_extra);
}

void refine_moe_combine(const Node& node, const Context& c, Cost& cost) { cost.flops = 2 * c.elems(node.in[0]); }

// A state is read if it exists (not before position 0) and written back, once per sequence.
void add_state_traffic(double floats, const Context& c, Cost& cost) {
  const double bytes = floats * sizeof(float) * static_cast<double>(c.step.n_seqs);
  cost.cache_written_bytes = bytes;
  cost.cache_read_bytes = c.step.depth > 0 ? bytes : 0;
}

void refine_short_conv(const Node& node, const Context& c, Cost& cost) {
  const int layer = node.as<ShortConvParams>().cache_layer;
  add_state_traffic(static_cast<double>(c.graph.caches()[static_cast<size_t>(layer)].recurrent.conv_floats()), c, cost);
  cost.flops = c.elems(node.out[0]) * (2 * static_cast<double>(c.shape(node.in[1])[1]) + kSiluFlops);
}

void refine_delta_net(const Node& node, const Context& c, Cost& cost) {
  const int layer = node.as<DeltaNetParams>().cache_layer;
  const double floats = static_cast<double>(c.graph.caches()[static_cast<size_t>(layer)].recurrent.delta_floats());
  add_state_traffic(floats, c, cost);
  cost.flops = kDeltaFlops * floats * c.rows(node.out[0]);
}

void refine_one_flop(const Node& node, const Context& c, Cost& cost) { cost.flops = c.elems(node.out[0]); }
void refine_softcap(const Node& node, const Context& c, Cost& cost) {
  cost.flops = kSoftcapFlops * c.elems(node.out[0]);
}
void refine_view(const Node&, const Context&, Cost& cost) { cost = {}; }  // no bytes move
void refine_slice(const Node&, const Context&, Cost& cost) {              // reads only the elements it writes
  cost.activation_read_bytes = cost.activation_written_bytes;
}
void refine_nothing(const Node&, const Context&, Cost&) {}
void refine_sample(const Node& node, const Context& c, Cost& cost) { cost.flops = c.elems(node.in[0]); }

using Refine = void (*)(const Node&, const Context&, Cost&);
struct RefineRow {
  Op op;
  Refine refine;
};
constexpr RefineRow kRefine[] = {
    {Op::embed, refine_embed},
    {Op::hidden_in, refine_hidden_in},
    {Op::linear, refine_linear},
    {Op::norm, refine_norm},
    {Op::rope, refine_rope},
    {Op::attention, refine_attention},
    {Op::gated_act, refine_gated_act},
    {Op::moe_route, refine_moe_route},
    {Op::moe_linear, refine_moe_linear},
    {Op::moe_combine, refine_moe_combine},
    {Op::short_conv, refine_short_conv},
    {Op::delta_net, refine_delta_net},
    {Op::softcap, refine_softcap},
    {Op::view, refine_view},
    {Op::slice, refine_slice},
    {Op::concat, refine_nothing},
    {Op::rows, refine_slice},
    {Op::sample, refine_sample},
};
// The other ops are elementwise: one operation per output.
Refine refine_of(Op op) {
  const auto* row = std::ranges::find(kRefine, op, &RefineRow::op);
  return row == std::end(kRefine) ? refine_one_flop : row->refine;
}

NodeCost with_roofline(const Cost& cost, const RooflinePeaks& peaks) {
  const double memory_s = cost.bytes() / peaks.bytes_per_s, compute_s = cost.flops / peaks.flops_per_s;
  const Bottleneck bottleneck = memory_s == 0 && compute_s == 0 ? Bottleneck::none
                                : memory_s >= compute_s         ? Bottleneck::memory
                                                                : Bottleneck::compute;
  return {cost, std::max(memory_s, compute_s), bottleneck};
}

void add_to(CostSum& sum, const NodeCost& node) {
  ++sum.n_nodes;
  sum.cost += node.cost;
  sum.time_s += node.time_s;
}

}  // namespace

double Cost::bytes() const { return weight_and_cache_bytes() + activation_read_bytes + activation_written_bytes; }
double Cost::weight_and_cache_bytes() const { return weight_bytes + cache_read_bytes + cache_written_bytes; }
double Cost::intensity() const { return bytes() > 0 ? flops / bytes() : 0; }

Cost& Cost::operator+=(const Cost& other) {
  weight_bytes += other.weight_bytes;
  activation_read_bytes += other.activation_read_bytes;
  activation_written_bytes += other.activation_written_bytes;
  cache_read_bytes += other.cache_read_bytes;
  cache_written_bytes += other.cache_written_bytes;
  flops += other.flops;
  return *this;
}

std::string_view bottleneck_name(Bottleneck bottleneck) {
  static constexpr std::array<std::string_view, 3> kNames = {"none", "memory", "compute"};
  return kNames[static_cast<size_t>(bottleneck)];
}

double expected_experts(int64_t n_experts, int64_t n_used, int64_t n_tokens) {
  if (n_experts <= 0) return 0;
  const double n = static_cast<double>(n_experts);
  const double missed_by_one = 1 - static_cast<double>(std::min(n_used, n_experts)) / n;
  return n * (1 - std::pow(missed_by_one, static_cast<double>(n_tokens)));
}

double GraphCost::tokens_per_s() const { return time_s > 0 ? static_cast<double>(step.n_tokens) / time_s : 0; }

double GraphCost::tokens_per_s_bound() const {
  const double least_s = std::max(total.weight_and_cache_bytes() / peaks.bytes_per_s, total.flops / peaks.flops_per_s);
  return least_s > 0 ? static_cast<double>(step.n_tokens) / least_s : 0;
}

GraphCost cost_graph(const Graph& graph, const BatchShape& step, const RooflinePeaks& peaks) {
  ZINC_CHECK(step.n_seqs >= 1 && step.n_tokens >= step.n_seqs && step.depth >= 0 && step.kv_format);
  ZINC_CHECK(peaks.bytes_per_s > 0 && peaks.flops_per_s > 0);
  GraphCost result;
  result.step = step;
  result.peaks = peaks;
  const Context context{graph, step};
  std::vector<double> times_s;
  for (const Node& node : graph.nodes()) {
    Cost cost = base_cost(node, context);
    refine_of(node.op)(node, context, cost);
    result.nodes.push_back(with_roofline(cost, peaks));
    result.total += cost;
    times_s.push_back(result.nodes.back().time_s);
    result.time_s += times_s.back();
  }
  const std::vector<Edge> edges = edges_of(graph);
  result.depths = node_depths(graph, edges);
  Path path = longest_path(edges, times_s);
  result.critical_path = std::move(path.nodes);
  result.critical_time_s = path.time_s;
  return result;
}

std::array<CostSum, kOpCount> sum_by_op(const Graph& graph, const GraphCost& cost) {
  std::array<CostSum, kOpCount> sums;
  for (size_t i = 0; i < cost.nodes.size(); ++i) add_to(sums[static_cast<size_t>(graph.nodes()[i].op)], cost.nodes[i]);
  return sums;
}

std::vector<CostSum> sum_by_layer(const Graph& graph, const GraphCost& cost) {
  std::vector<CostSum> sums(1);
  for (size_t i = 0; i < cost.nodes.size(); ++i) {
    const size_t entry = static_cast<size_t>(graph.nodes()[i].layer + 1);
    if (sums.size() <= entry) sums.resize(entry + 1);
    add_to(sums[entry], cost.nodes[i]);
  }
  return sums;
}

size_t resident_weight_bytes(const Graph& graph) {
  size_t bytes = 0;
  for (int i = 0; i < graph.n_values(); ++i) bytes += graph.info(Value{i}).weight.bytes.size();
  return bytes;
}

size_t kv_bytes_per_token(std::span<const LayerCache> layers, const Format& kv_format) {
  size_t bytes = 0;
  for (const PageGroup& group : page_groups(layers)) bytes += page_bytes(group, layers, kv_format) / kPageTokens;
  return bytes;
}

}  // namespace zinc
