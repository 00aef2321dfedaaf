// graph_to_json (graph_export.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/utf8.h"
#include "graph/dependencies.h"
#include "graph/graph_export.h"
#include "graph/memory_plan.h"

namespace zinc {
namespace {

// ---- params: one overload per struct of op.h ----

json::object params_json(const std::monostate&) { return {}; }
json::object params_json(const NormParams& p) {
  return {{"kind", p.kind == NormKind::rms ? "rms" : "l2"}, {"eps", p.eps}};
}
json::object params_json(const RopeParams& p) {
  json::object out = {{"pairs", p.pairs == RopePairs::adjacent ? "adjacent" : "halves"},
                      {"n_dims", p.n_dims},
                      {"theta", p.theta},
                      {"position_scale", p.position_scale},
                      {"amplitude", p.amplitude}};
  if (p.yarn.original_context > 0) {
    out["yarn"] = {{"original_context", p.yarn.original_context},
                   {"beta_fast", p.yarn.beta_fast},
                   {"beta_slow", p.yarn.beta_slow}};
  }
  if (p.extension.kind != RopeExtensionKind::none) {
    out["extension"] = {{"kind", p.extension.kind == RopeExtensionKind::yarn ? "yarn" : "longrope"},
                        {"context", p.extension.context},
                        {"max_context", p.extension.max_context}};
  }
  return out;
}
json::object params_json(const AttentionParams& p) {
  return {{"cache_layer", p.cache_layer}, {"scale", p.scale}, {"window", p.window}, {"softcap", p.softcap}};
}
json::object params_json(const GatedActParams& p) {
  static constexpr std::array<std::string_view, 4> kNames = {"silu", "gelu", "sigmoid", "swiglu_oai"};
  return {{"act", kNames[static_cast<size_t>(p.act)]}};
}
json::object params_json(const MoeRouteParams& p) {
  static constexpr std::array<std::string_view, 3> kNames = {"softmax", "softmax_normalized", "softmax_of_selected"};
  return {{"n_used", p.n_used}, {"weights", kNames[static_cast<size_t>(p.weights)]}, {"scale", p.scale}};
}
json::object params_json(const ShortConvParams& p) { return {{"cache_layer", p.cache_layer}}; }
json::object params_json(const DeltaNetParams& p) {
  return {{"cache_layer", p.cache_layer},
          {"sharing", p.sharing == HeadSharing::grouped ? "grouped" : "cyclic"},
          {"q_scale", p.q_scale}};
}
json::object params_json(const ScaleParams& p) { return {{"factor", p.factor}}; }
json::object params_json(const SoftcapParams& p) { return {{"cap", p.cap}}; }
json::object params_json(const SliceParams& p) { return {{"begin", p.begin}}; }

// ---- values and costs ----

json::array shape_json(const Shape& shape) {
  json::array out;
  for (int i = 0; i < shape.n_dims(); ++i) out.push_back(shape[i]);
  return out;
}

json::value value_json(const Graph& graph, Value v) {
  if (!v) return nullptr;
  const ValueInfo& info = graph.info(v);
  json::object out = {{"value", v.id}};
  if (!info.name.empty()) out["name"] = info.name;
  if (info.is_weight()) {
    out["weight"] = true;
    out["format"] = info.weight.format->name;
    out["bytes"] = info.weight.bytes.size();
  } else {
    out["rows"] = info.rows == Rows::tokens ? "tokens" : "outputs";
    out["element"] = info.element == Element::f32 ? "f32" : "i32";
  }
  out["shape"] = shape_json(info.shape);
  return out;
}

// Integral values as integers: 4096, not 4.096E3.
json::value number(double x) {
  constexpr double kLargestExact = 9007199254740992.0;  // 2^53
  return x == std::floor(x) && std::abs(x) <= kLargestExact ? json::value(static_cast<int64_t>(x)) : json::value(x);
}

json::object cost_json(const Cost& cost, double time_s) {
  return {{"weight_bytes", number(cost.weight_bytes)},
          {"activation_read_bytes", number(cost.activation_read_bytes)},
          {"activation_written_bytes", number(cost.activation_written_bytes)},
          {"cache_read_bytes", number(cost.cache_read_bytes)},
          {"cache_written_bytes", number(cost.cache_written_bytes)},
          {"bytes", number(cost.bytes())},
          {"flops", number(cost.flops)},
          {"intensity", number(cost.intensity())},
          {"time_s", time_s}};
}

json::value layer_json(int layer) { return layer < 0 ? json::value(nullptr) : json::value(layer); }

json::object node_json(const Graph& graph, const GraphCost& cost, size_t i) {
  const Node& node = graph.nodes()[i];
  size_t n_inputs = node.in.size();
  while (n_inputs > 0 && !node.in[n_inputs - 1]) --n_inputs;
  json::array inputs, outputs;
  for (size_t k = 0; k < n_inputs; ++k) inputs.push_back(value_json(graph, node.in[k]));
  for (Value v : node.out) {
    if (v) outputs.push_back(value_json(graph, v));
  }
  json::object costs = cost_json(cost.nodes[i].cost, cost.nodes[i].time_s);
  costs["bottleneck"] = bottleneck_name(cost.nodes[i].bottleneck);
  return {{"id", i},
          {"op", op_name(node.op)},
          {"layer", layer_json(node.layer)},
          {"inputs", std::move(inputs)},
          {"outputs", std::move(outputs)},
          {"params", std::visit([](const auto& p) { return params_json(p); }, node.params)},
          {"cost", std::move(costs)}};
}

json::object sum_json(const CostSum& sum) {
  json::object out = cost_json(sum.cost, sum.time_s);
  out["n_nodes"] = sum.n_nodes;
  return out;
}

// ---- parts of the report ----

json::array edges_json(const Graph& graph) {
  json::array out;
  for (const Edge& edge : edges_of(graph)) {
    json::object entry = {{"from", edge.from}, {"to", edge.to}};
    if (edge.value) {
      entry["value"] = edge.value.id;
    } else {
      entry["cache"] = true;
    }
    out.push_back(std::move(entry));
  }
  return out;
}

json::object depth_json(const GraphCost& cost) {
  const int length = cost.depths.empty() ? 0 : *std::ranges::max_element(cost.depths);
  std::vector<int64_t> widths(static_cast<size_t>(length));
  for (int depth : cost.depths) ++widths[static_cast<size_t>(depth - 1)];
  return {{"length", length}, {"widths", json::array(widths.begin(), widths.end())}};
}

json::array hotspots_json(const Graph& graph, const GraphCost& cost) {
  std::vector<size_t> order(cost.nodes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return cost.nodes[i].time_s; });
  order.resize(std::min(order.size(), kHotspots));
  json::array out;
  for (size_t i : order) {
    const NodeCost& node = cost.nodes[i];
    out.push_back({{"id", i},
                   {"op", op_name(graph.nodes()[i].op)},
                   {"layer", layer_json(graph.nodes()[i].layer)},
                   {"time_s", node.time_s},
                   {"share", cost.time_s > 0 ? node.time_s / cost.time_s : 0.0},
                   {"bottleneck", bottleneck_name(node.bottleneck)}});
  }
  return out;
}

json::object memory_json(const Graph& graph, const GraphCost& cost) {
  const int n_tokens = static_cast<int>(cost.step.n_tokens), n_seqs = static_cast<int>(cost.step.n_seqs);
  const MemoryPlan plan = plan_memory(graph, n_tokens, n_seqs, /*keep_all=*/false);
  json::array groups;
  for (const PageGroup& group : page_groups(graph.caches())) {
    groups.push_back({{"window", group.window},
                      {"layers", json::array(group.layers.begin(), group.layers.end())},
                      {"bytes_per_token", page_bytes(group, graph.caches(), *cost.step.kv_format) / kPageTokens}});
  }
  return {{"weight_bytes", resident_weight_bytes(graph)},
          {"kv_bytes_per_token", kv_bytes_per_token(graph.caches(), *cost.step.kv_format)},
          {"kv_groups", std::move(groups)},
          {"state_bytes_per_sequence", state_bytes(graph.caches())},
          {"activation_arena_bytes", plan.n_elems * sizeof(float)}};
}

json::object totals_json(const Graph& graph, const GraphCost& cost) {
  json::object totals = cost_json(cost.total, cost.time_s);
  totals["n_nodes"] = graph.nodes().size();
  totals["tokens_per_s"] = cost.tokens_per_s();
  totals["tokens_per_s_bound"] = cost.tokens_per_s_bound();
  return totals;
}

}  // namespace

json::value graph_to_json(const Graph& graph, const GraphCost& cost, std::string_view title) {
  json::array nodes, by_layer;
  for (size_t i = 0; i < graph.nodes().size(); ++i) nodes.push_back(node_json(graph, cost, i));
  json::object op_counts, by_op;
  const std::array<CostSum, kOpCount> op_sums = sum_by_op(graph, cost);
  for (size_t op = 0; op < kOpCount; ++op) {
    if (op_sums[op].n_nodes == 0) continue;
    op_counts[op_name(static_cast<Op>(op))] = op_sums[op].n_nodes;
    by_op[op_name(static_cast<Op>(op))] = sum_json(op_sums[op]);
  }
  const std::vector<CostSum> layer_sums = sum_by_layer(graph, cost);
  for (size_t entry = 0; entry < layer_sums.size(); ++entry) {
    json::object sum = sum_json(layer_sums[entry]);
    sum["layer"] = layer_json(static_cast<int>(entry) - 1);
    by_layer.push_back(std::move(sum));
  }
  return json::object{
      {"title", replace_invalid_utf8(title)},
      {"step",
       {{"n_tokens", cost.step.n_tokens},
        {"n_seqs", cost.step.n_seqs},
        {"depth", cost.step.depth},
        {"kv_format", cost.step.kv_format->name}}},
      {"device", {{"bytes_per_s", number(cost.peaks.bytes_per_s)}, {"flops_per_s", number(cost.peaks.flops_per_s)}}},
      {"nodes", std::move(nodes)},
      {"edges", edges_json(graph)},
      {"op_counts", std::move(op_counts)},
      {"depth", depth_json(cost)},
      {"critical_path",
       {{"time_s", cost.critical_time_s},
        {"nodes", json::array(cost.critical_path.begin(), cost.critical_path.end())}}},
      {"hotspots", hotspots_json(graph, cost)},
      {"by_op", std::move(by_op)},
      {"by_layer", std::move(by_layer)},
      {"totals", totals_json(graph, cost)},
      {"memory", memory_json(graph, cost)},
  };
}

}  // namespace zinc
