#include "graph/split_graph.h"

#include <algorithm>
#include <limits>

namespace zinc {

int cache_layer_of(const Node& node) {
  switch (node.op) {
    case Op::attention:
      return node.as<AttentionParams>().cache_layer;
    case Op::short_conv:
      return node.as<ShortConvParams>().cache_layer;
    case Op::delta_net:
      return node.as<DeltaNetParams>().cache_layer;
    default:
      return -1;
  }
}

std::vector<int> layer_cuts(const Graph& graph) {
  const std::span<const Node> nodes = graph.nodes();
  struct Uses {
    size_t first = std::numeric_limits<size_t>::max(), last = 0;
  };
  std::vector<Uses> caches(graph.caches().size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int layer = cache_layer_of(nodes[i]);
    if (layer < 0) continue;
    Uses& uses = caches[static_cast<size_t>(layer)];
    uses = {std::min(uses.first, i), i};
  }
  std::vector<int> cuts;
  int layer = -1;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].layer <= layer) continue;
    layer = nodes[i].layer;
    const bool is_shared = std::ranges::any_of(caches, [&](const Uses& c) { return c.first < i && c.last >= i; });
    if (!is_shared) cuts.push_back(static_cast<int>(i));
  }
  return cuts;
}

std::vector<ExpertNodes> expert_nodes(const Graph& graph) {
  std::vector<ExpertNodes> all;
  const std::span<const Node> nodes = graph.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int at = static_cast<int>(i);
    if (nodes[i].op == Op::moe_route) all.push_back({.layer = nodes[i].layer, .begin = at, .end = at + 1});
    if (nodes[i].op == Op::moe_combine) all.back().end = at + 1;
  }
  return all;
}

// Copies nodes of the whole graph into the graph of one stage.
class GraphSplitter {
 public:
  GraphSplitter(const Graph& graph, int begin, int end) : graph_(graph), begin_(begin), end_(end) {
    stage_.values.resize(static_cast<size_t>(graph.n_values()));
  }

  GraphStage copy(std::vector<Value> inputs, std::vector<Value> outputs) {
    stage_.inputs = std::move(inputs);
    stage_.outputs = std::move(outputs);
    add_inputs();
    for (int i = begin_; i < end_; ++i) copy_node(i);
    add_outputs();
    add_caches();
    return std::move(stage_);
  }

 private:
  Graph& out() { return stage_.graph; }
  Value& copied(Value whole) { return stage_.values[static_cast<size_t>(whole.id)]; }

  Value add_value(ValueInfo info) {
    out().values_.push_back(std::move(info));
    return Value{out().n_values() - 1};
  }

  Value add_node(Op op, std::array<Value, 2> in, OpParams params, const Shape& shape) {
    ValueInfo info;
    info.rows = Rows::tokens;
    info.shape = shape;
    Node node{.op = op, .layer = -1, .out = {add_value(std::move(info))}, .in = {in[0], in[1]}, .params = params};
    out().nodes_.push_back(node);
    stage_.nodes.push_back(-1);
    return node.out[0];
  }

  Value with_shape(Value v, const Shape& shape) {
    return out().info(v).shape == shape ? v : add_node(Op::view, {v}, {}, shape);
  }

  void add_inputs() {
    if (stage_.inputs.empty()) return;
    int64_t width = 0;
    for (const Value v : stage_.inputs) width += graph_.info(v).shape.elems();
    const Value all = add_node(Op::hidden_in, {}, {}, Shape{width});
    int64_t begin = 0;
    for (const Value v : stage_.inputs) {
      const ValueInfo& info = graph_.info(v);
      const int64_t n = info.shape.elems();
      const Value own = n == width ? all : add_node(Op::slice, {all}, SliceParams{begin}, Shape{n});
      copied(v) = with_shape(own, info.shape);
      begin += n;
    }
  }

  void copy_node(int i) {
    const Node& from = graph_.nodes()[static_cast<size_t>(i)];
    Node node = from;
    for (Value& v : node.in) {
      if (!v) continue;
      if (!copied(v) && graph_.info(v).is_weight()) copied(v) = add_value(graph_.info(v));
      ZINC_CHECK(bool(copied(v)));  // otherwise it is an input
      v = copied(v);
    }
    for (Value& v : node.out) {
      if (v) v = copied(v) = add_value(graph_.info(v));
    }
    out().nodes_.push_back(node);
    stage_.nodes.push_back(i);
  }

  void add_outputs() {
    if (graph_.logits()) out().logits_ = copied(graph_.logits());
    if (stage_.outputs.empty()) {
      if (graph_.hidden()) out().hidden_ = copied(graph_.hidden());
      return;
    }
    Value joined;
    for (const Value v : stage_.outputs) {
      const Value row = with_shape(copied(v), Shape{graph_.info(v).shape.elems()});
      const int64_t n = out().info(row).shape.elems();
      joined = joined ? add_node(Op::concat, {joined, row}, {}, Shape{out().info(joined).shape.elems() + n}) : row;
    }
    out().hidden_ = joined;
  }

  void add_caches() {
    out().caches_.resize(graph_.caches().size());
    for (const Node& node : out().nodes()) {
      const int layer = cache_layer_of(node);
      if (layer < 0) continue;
      out().caches_[static_cast<size_t>(layer)] = graph_.caches()[static_cast<size_t>(layer)];
      if (std::ranges::find(stage_.cache_layers, layer) == stage_.cache_layers.end()) {
        stage_.cache_layers.push_back(layer);
      }
    }
    std::ranges::sort(stage_.cache_layers);
  }

  const Graph& graph_;
  int begin_, end_;
  GraphStage stage_;
};

Result<std::vector<GraphStage>> split_graph(const Graph& graph, std::span<const int> cuts) {
  const int n_nodes = static_cast<int>(graph.nodes().size());
  std::vector<int> bounds = {0};
  for (const int cut : cuts) {
    ZINC_CHECK(cut > bounds.back() && cut < n_nodes);
    bounds.push_back(cut);
  }
  bounds.push_back(n_nodes);
  const size_t n_stages = bounds.size() - 1;
  std::vector<size_t> produced_in(static_cast<size_t>(graph.n_values()));
  std::vector<std::vector<Value>> inputs(n_stages), outputs(n_stages);
  const auto add = [](std::vector<Value>& values, Value v) {
    if (std::ranges::find(values, v) == values.end()) values.push_back(v);
  };
  for (size_t s = 0; s < n_stages; ++s) {
    for (int i = bounds[s]; i < bounds[s + 1]; ++i) {
      const Node& node = graph.nodes()[static_cast<size_t>(i)];
      for (const Value v : node.out) {
        if (v) produced_in[static_cast<size_t>(v.id)] = s;
      }
      for (const Value v : node.in) {
        if (!v || graph.info(v).is_weight()) continue;
        const size_t from = produced_in[static_cast<size_t>(v.id)];
        if (from == s) continue;
        const ValueInfo& info = graph.info(v);
        if (info.rows != Rows::tokens || info.element != Element::f32) {
          return fail(ErrorCode::unsupported,
                      "the graph cannot be cut before node {}: {} reads a value across the cut "
                      "that is not a row of floats per token",
                      bounds[s], op_name(node.op));
        }
        add(inputs[s], v);
        add(outputs[from], v);
      }
    }
  }
  const bool has_hidden = bool(graph.hidden());
  if (has_hidden && produced_in[static_cast<size_t>(graph.hidden().id)] + 1 != n_stages) {
    return fail(ErrorCode::unsupported, "the graph cannot be cut behind its final norm");
  }
  std::vector<GraphStage> stages;
  for (size_t s = 0; s < n_stages; ++s) {
    stages.push_back(GraphSplitter(graph, bounds[s], bounds[s + 1]).copy(std::move(inputs[s]), std::move(outputs[s])));
  }
  return stages;
}

}  // namespace zinc
