#include "graph/shard_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/split_graph.h"

namespace zinc {

std::vector<size_t> ShardedGraph::summed(Value v) const {
  std::vector<size_t> devices;
  for (size_t d = 0; d < layout.n_devices(); ++d) {
    if (layout.is_partial_on(v, d)) devices.push_back(d);
  }
  return devices;
}

// Writes the graphs of one device.
class GraphSharder {
 public:
  GraphSharder(const Graph& graph, const ShardLayout& layout, size_t device)
      : graph_(graph), layout_(layout), device_(device) {
    shards_.resize(static_cast<size_t>(layout.n_stages()));
    for (GraphShard& shard : shards_) shard.values.resize(static_cast<size_t>(graph.n_values()));
    caches_.resize(graph.caches().size());
  }

  Status write() {
    find_crossing_values();
    for (stage_ = 0; stage_ < shards_.size(); ++stage_) {
      add_inputs();
      for (size_t i = 0; i < graph_.nodes().size(); ++i) {
        if (!runs_here(i)) continue;
        node_ = static_cast<int>(i);
        if (Status s = write_node(i); !s.ok()) return s;
      }
      add_outputs();
      add_caches();
    }
    return ok_status();
  }

  std::vector<GraphShard>& shards() { return shards_; }
  std::vector<LayerCache>& caches() { return caches_; }
  WeightSlices& weights() { return weights_; }

 private:
  GraphShard& shard() { return shards_[stage_]; }
  Graph& out() { return shard().graph; }
  const ValueInfo& info(Value v) const { return graph_.info(v); }
  bool is_activation(Value v) const { return v && !info(v).is_weight(); }
  bool runs_here(size_t i) const { return layout_.runs(device_, i) && layout_.stage(i) == static_cast<int>(stage_); }
  Value& written(Value v) { return shard().values[static_cast<size_t>(v.id)]; }

  // ---- values that cross stages ----

  // Of a value that is not partial: the elements that the device has; else all.
  IndexRanges elems(Value v) const {
    const Shape& shape = info(v).shape;
    if (layout_.is_partial(v)) return {0, layout_.is_per_expert(v) ? shape.inner() : shape.elems()};
    return layout_.elems(device_, v);
  }

  // Whether the device reads the value here, and does not leave it to the device that adds the residual stream.
  bool reads(size_t i, Value v) const {
    const Node& node = graph_.nodes()[i];
    const Value result = node.out[0];
    if (!layout_.is_partial(result) || layout_.columns(i)) return true;
    if (layout_.is_partial(v) && !layout_.reads_sum(i, v)) return layout_.is_partial_on(v, device_);
    return node.op != Op::add || layout_.first_device(result) == device_;
  }

  void find_crossing_values() {
    std::vector<size_t> produced_in(static_cast<size_t>(graph_.n_values()));
    const auto add = [](std::vector<CrossingValue>& values, const CrossingValue& v) {
      if (std::ranges::find(values, v) == values.end()) values.push_back(v);
    };
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      const size_t stage = static_cast<size_t>(layout_.stage(i));
      for (const Value v : node.out) {
        if (v) produced_in[static_cast<size_t>(v.id)] = stage;
      }
      if (!layout_.runs(device_, i)) continue;
      if (layout_.is_partial(node.out[0]) && layout_.needs_sum(node.out[0])) {
        const Value v = node.out[0];
        add(shards_[stage].outputs, {v, false, static_cast<size_t>(info(v).shape.elems())});
      }
      for (const Value v : node.in) {
        if (!is_activation(v) || !reads(i, v)) continue;
        const size_t from = produced_in[static_cast<size_t>(v.id)];
        if (from == stage) continue;
        const bool is_sum = layout_.reads_sum(i, v);
        const CrossingValue crossing{v, is_sum, static_cast<size_t>(elems(v).size())};
        add(shards_[stage].inputs, crossing);
        if (!is_sum) add(shards_[from].outputs, crossing);
      }
    }
  }

  void add_inputs() {
    if (shard().inputs.empty()) return;
    int64_t width = 0;
    for (const CrossingValue& v : shard().inputs) width += static_cast<int64_t>(v.n_elems);
    node_ = -1;
    const Value all = add_node(Op::hidden_in, {}, {}, Rows::tokens, Shape{width});
    int64_t begin = 0;
    for (const CrossingValue& v : shard().inputs) {
      const int64_t n = static_cast<int64_t>(v.n_elems);
      const Value own = n == width ? all : add_node(Op::slice, {all}, SliceParams{begin}, Rows::tokens, Shape{n});
      written(v.value) = with_shape(own, part_shape(v.value, elems(v.value)));
      begin += n;
    }
  }

  void add_outputs() {
    node_ = -1;
    if (graph_.logits() && written(graph_.logits())) out().logits_ = written(graph_.logits());
    if (shard().outputs.empty()) {
      if (graph_.hidden() && written(graph_.hidden())) out().hidden_ = written(graph_.hidden());
      return;
    }
    Value joined;
    for (const CrossingValue& v : shard().outputs) {
      const int64_t n = static_cast<int64_t>(v.n_elems);
      const Value row = with_shape(written(v.value), Shape{n});
      if (!joined) {
        joined = row;
        continue;
      }
      const int64_t width = out().info(joined).shape.elems() + n;
      joined = add_node(Op::concat, {joined, row}, {}, Rows::tokens, Shape{width});
    }
    out().hidden_ = joined;
  }

  void add_caches() {
    out().caches_.resize(caches_.size());
    for (const Node& node : out().nodes()) {
      const int layer = cache_layer_of(node);
      if (layer >= 0) out().caches_[static_cast<size_t>(layer)] = caches_[static_cast<size_t>(layer)];
    }
  }

  // ---- nodes ----

  Value add_value(ValueInfo value) {
    out().values_.push_back(std::move(value));
    return Value{out().n_values() - 1};
  }

  Value add_node(Op op, const std::array<Value, Node::kMaxInputs>& in, const OpParams& params, Rows rows,
                 const Shape& shape) {
    ValueInfo value;
    value.rows = rows;
    value.shape = shape;
    Node node{.op = op, .layer = -1, .out = {add_value(std::move(value))}, .in = in, .params = params};
    if (node_ >= 0) node.layer = graph_.nodes()[static_cast<size_t>(node_)].layer;
    out().nodes_.push_back(node);
    shard().nodes.push_back(-1);
    return node.out[0];
  }

  Value with_shape(Value v, const Shape& shape) {
    const ValueInfo& value = out().info(v);
    return value.shape == shape ? v : add_node(Op::view, {v}, {}, value.rows, shape);
  }

  // The shape of a part of a value: whole innermost rows keep their width.
  Shape part_shape(Value v, const IndexRanges& part) const {
    const Shape& shape = info(v).shape;
    if (shape.n_dims() < 2) return {part.size()};
    if (layout_.is_per_expert(v)) return {shape[0], part.size()};
    if (part.is_all(shape.elems())) return shape;
    const int64_t row = shape.inner();
    return part.divided(row).scaled(row) == part ? Shape{part.size() / row, row} : Shape{part.size()};
  }

  // These elements of a value, which the device has.
  Value take(Value v, const IndexRanges& part) {
    const IndexRanges own = elems(v);
    if (part == own) return written(v);
    const bool is_per_expert = layout_.is_per_expert(v);
    const Rows rows = info(v).rows;
    const Value from = is_per_expert ? written(v) : with_shape(written(v), Shape{own.size()});
    const auto shape_of = [&](int64_t n) { return is_per_expert ? Shape{info(v).shape[0], n} : Shape{n}; };
    Value joined;
    int64_t width = 0;
    const IndexRanges positions = own.positions_of(part);
    for (const IndexRange& range : positions.ranges()) {
      const Value piece = add_node(Op::slice, {from}, SliceParams{range.begin}, rows, shape_of(range.size()));
      width += range.size();
      joined = joined ? add_node(Op::concat, {joined, piece}, {}, rows, shape_of(width)) : piece;
    }
    return with_shape(joined, part_shape(v, part));
  }
  Value take_all(Value v) {
    return take(v, {0, layout_.is_per_expert(v) ? info(v).shape.inner() : info(v).shape.elems()});
  }

  Result<Value> weight(Value v) {
    if (!v) return v;
    const Shape& shape = info(v).shape;
    return weight(v, {0, shape.n_dims() < 2 ? 1 : shape[shape.n_dims() - 2]}, {0, shape.inner()});
  }
  // Each part has a name of its own, by which backends find it.
  Result<Value> weight(Value v, const IndexRanges& rows, const IndexRanges& columns) {
    if (!v) return v;
    ZINC_TRY(view, weights_.slice(info(v), rows, columns));
    ValueInfo part = info(v);
    part.weight = view;
    part.shape = view.shape;
    if (part.shape != info(v).shape) {
      const auto [known, is_new] = names_.try_emplace({v.id, rows, columns});
      if (is_new) known->second = fmt::format("{}, part {} on device {}", part.name, names_.size(), device_);
      part.name = known->second;
    }
    return add_value(std::move(part));
  }
  Result<Value> vector(Value v, const IndexRanges& part) { return weight(v, {0, 1}, part); }

  Status finish_node(size_t i, const std::array<Value, Node::kMaxInputs>& in, const Shape& shape) {
    Node node = graph_.nodes()[i];
    node.in = in;
    for (Value& v : node.out) {
      if (!v) continue;
      ValueInfo value = info(v);
      if (v == graph_.nodes()[i].out[0]) value.shape = shape;
      v = written(v) = add_value(std::move(value));
    }
    out().nodes_.push_back(node);
    shard().nodes.push_back(static_cast<int32_t>(i));
    return ok_status();
  }

  Status write_node(size_t i) {
    const Node& node = graph_.nodes()[i];
    const Value result = node.out[0];
    if (layout_.columns(i)) return write_column_split(i);
    if (layout_.is_partial(result)) return write_partial(i);
    const IndexRanges part = elems(result);
    const Shape shape = part_shape(result, part);
    const auto input = [&](size_t k) { return take(node.in[k], part); };
    switch (node.op) {
      case Op::linear:
      case Op::moe_linear:
        return write_row_split(i, part, shape);
      case Op::attention:
        return write_attention(i, part, shape);
      case Op::delta_net:
        return write_delta(i, part, shape);
      case Op::short_conv: {
        ZINC_TRY(taps, weight(node.in[1], part, {0, info(node.in[1]).shape.inner()}));
        RecurrentCache& state = cache(node).recurrent;
        state.conv_channels = static_cast<int>(part.size());
        state.conv_taps = static_cast<int>(info(node.in[1]).shape.inner());
        return finish_node(i, {input(0), taps}, shape);
      }
      case Op::mul: {
        const bool is_element_by_element = info(node.in[1]).shape.elems() > 1 && shape.n_dims() < 2;
        ZINC_TRY(factor, is_element_by_element ? vector(node.in[1], part) : weight(node.in[1]));
        return finish_node(i, {input(0), factor}, shape);
      }
      case Op::norm:
      case Op::rope: {
        ZINC_TRY(first, weight(node.in[1]));
        ZINC_TRY(second, weight(node.in[2]));
        return finish_node(i, {input(0), first, second}, shape);
      }
      case Op::slice:
        return write_slice(i, part, shape);
      case Op::concat:
        return write_concat(i, part, shape);
      case Op::gated_act: {
        const bool is_broadcast = info(node.in[0]).shape.elems() == 1;
        return finish_node(i, {is_broadcast ? take_all(node.in[0]) : input(0), input(1)}, shape);
      }
      case Op::view:
        return finish_node(i, {input(0)}, shape);
      case Op::moe_route:
      case Op::moe_combine:
      case Op::rows:
      case Op::sample:
        return finish_node(i, {take_all(node.in[0]), node.in[1] ? take_all(node.in[1]) : Value{}}, shape);
      default:  // add, and ops of one input
        return finish_node(i, {input(0), node.in[1] ? input(1) : Value{}}, shape);
    }
  }

  // Rows of the weights: a part of the output.
  Status write_row_split(size_t i, const IndexRanges& part, const Shape& shape) {
    const Node& node = graph_.nodes()[i];
    const Value x = take_all(node.in[0]);
    ZINC_TRY(matrix, weight(node.in[1], part, {0, info(node.in[1]).shape.inner()}));
    if (node.op == Op::linear) {
      ZINC_TRY(bias, vector(node.in[2], part));
      return finish_node(i, {x, matrix, bias}, shape);
    }
    ZINC_TRY(bias, expert_bias(node.in[3], part));
    ZINC_TRY(scale, weight(node.in[4]));
    return finish_node(i, {x, matrix, take_all(node.in[2]), bias, scale}, shape);
  }

  Result<Value> expert_bias(Value v, const IndexRanges& part) {  // [experts, out]
    return v ? weight(v, {0, info(v).shape[0]}, part) : Result<Value>(v);
  }

  // Columns of the weights: a partial sum of the whole output. One of the devices adds the bias.
  Status write_column_split(size_t i) {
    const Node& node = graph_.nodes()[i];
    const IndexRanges& columns = (*layout_.columns(i))[device_];
    const Shape& shape = info(node.in[1]).shape;
    const bool adds_bias = layout_.first_device(node.out[0]) == device_;
    const Value x = take(node.in[0], columns);
    ZINC_TRY(matrix, weight(node.in[1], {0, shape[shape.n_dims() - 2]}, columns));
    ZINC_TRY(bias, weight(adds_bias ? node.in[node.op == Op::linear ? 2 : 3] : Value{}));
    if (node.op == Op::linear) {
      return finish_node(i, {with_shape(x, Shape{columns.size()}), matrix, bias}, info(node.out[0]).shape);
    }
    ZINC_TRY(scale, weight(node.in[4]));
    return finish_node(i, {x, matrix, take_all(node.in[2]), bias, scale}, info(node.out[0]).shape);
  }

  // Ops of partial sums. What only one device adds, the others leave out.
  Status write_partial(size_t i) {
    const Node& node = graph_.nodes()[i];
    std::array<Value, Node::kMaxInputs> in = {};
    size_t n_inputs = 0;
    Value only;
    for (size_t k = 0; k < node.in.size(); ++k) {
      if (!node.in[k]) continue;
      if (!is_activation(node.in[k])) {
        ZINC_TRY(own, weight(node.in[k]));
        in[k] = own;
      } else if (reads(i, node.in[k])) {
        in[k] = only = take_all(node.in[k]);
        ++n_inputs;
      }
    }
    if (node.op == Op::add && n_inputs == 1) {
      written(node.out[0]) = only;
      return ok_status();
    }
    return finish_node(i, in, info(node.out[0]).shape);
  }

  LayerCache& cache(const Node& node) { return caches_[static_cast<size_t>(cache_layer_of(node))]; }

  Status write_attention(size_t i, const IndexRanges& part, const Shape& shape) {
    const Node& node = graph_.nodes()[i];
    const AttentionCache& whole = graph_.caches()[static_cast<size_t>(cache_layer_of(node))].attention;
    const IndexRanges query_heads = part.divided(whole.v_dim), &heads = layout_.heads(device_, i);
    const Value q = take(node.in[0], query_heads.scaled(whole.k_dim));
    Value k, v;
    if (node.in[1]) {
      k = take(node.in[1], heads.scaled(whole.k_dim));
      v = take(node.in[2], heads.scaled(whole.v_dim));
      AttentionCache& own = cache(node).attention;
      own = whole;
      own.kv_heads = static_cast<int>(heads.size());
    }
    ZINC_TRY(sinks, vector(node.in[3], query_heads));
    return finish_node(i, {q, k, v, sinks}, shape);
  }

  Status write_delta(size_t i, const IndexRanges& part, const Shape& shape) {
    const Node& node = graph_.nodes()[i];
    const int64_t k_dim = info(node.in[0]).shape.inner(), v_dim = info(node.in[2]).shape.inner();
    const IndexRanges key_heads = layout_.heads(device_, i).scaled(k_dim), value_heads = part.divided(v_dim);
    RecurrentCache& state = cache(node).recurrent;
    state.heads = static_cast<int>(value_heads.size());
    state.k_dim = static_cast<int>(k_dim);
    state.v_dim = static_cast<int>(v_dim);
    ZINC_TRY(dt_bias, vector(node.in[5], value_heads));
    ZINC_TRY(a, vector(node.in[6], value_heads));
    return finish_node(i,
                       {take(node.in[0], key_heads), take(node.in[1], key_heads), take(node.in[2], part),
                        take(node.in[3], value_heads), take(node.in[4], value_heads), dt_bias, a},
                       shape);
  }

  bool has_rows(Value v) const { return info(v).shape.n_dims() > 1 && !layout_.is_per_expert(v); }

  Status write_slice(size_t i, const IndexRanges& part, const Shape& shape) {
    const Node& node = graph_.nodes()[i];
    const Value from = node.in[0];
    const int64_t begin = node.as<SliceParams>().begin, row = info(from).shape.inner();
    if (has_rows(node.out[0])) {
      const int64_t width = info(node.out[0]).shape.inner();
      return finish_node(i, {take(from, part.divided(width).scaled(row))}, shape);
    }
    const Value piece = take(from, part.shifted(begin));
    written(node.out[0]) = with_shape(piece, shape);
    return ok_status();
  }

  Status write_concat(size_t i, const IndexRanges& part, const Shape& shape) {
    const Node& node = graph_.nodes()[i];
    const int64_t a = info(node.in[0]).shape.inner(), b = info(node.in[1]).shape.inner();
    if (has_rows(node.out[0])) {
      const IndexRanges rows = part.divided(a + b);
      return finish_node(i, {take(node.in[0], rows.scaled(a)), take(node.in[1], rows.scaled(b))}, shape);
    }
    const IndexRanges of_a = part.within({0, a}), of_b = part.within({a, a + b}).shifted(-a);
    if (!of_a.empty() && !of_b.empty()) return finish_node(i, {take(node.in[0], of_a), take(node.in[1], of_b)}, shape);
    written(node.out[0]) = with_shape(of_a.empty() ? take(node.in[1], of_b) : take(node.in[0], of_a), shape);
    return ok_status();
  }

  const Graph& graph_;
  const ShardLayout& layout_;
  size_t device_;
  std::vector<GraphShard> shards_;
  std::vector<LayerCache> caches_;
  WeightSlices weights_;
  std::map<std::tuple<int32_t, IndexRanges, IndexRanges>, std::string> names_;  // of parts: weight, rows, columns
  size_t stage_ = 0;
  int node_ = -1;  // of the whole graph, whose nodes are written
};

Result<std::unique_ptr<ShardedGraph>> shard_graph(const Graph& graph, size_t n_devices) {
  ZINC_TRY(layout, ShardLayout::make(graph, n_devices));
  auto sharded = std::make_unique<ShardedGraph>(ShardedGraph{std::move(layout), {}, {}, {}});
  sharded->stages.resize(static_cast<size_t>(sharded->layout.n_stages()));
  for (size_t d = 0; d < n_devices; ++d) {
    GraphSharder sharder(graph, sharded->layout, d);
    if (Status s = sharder.write(); !s.ok()) return s.error();
    for (size_t s = 0; s < sharded->stages.size(); ++s) {
      sharded->stages[s].push_back(std::move(sharder.shards()[s]));
    }
    sharded->caches.push_back(std::move(sharder.caches()));
    sharded->weights.push_back(std::move(sharder.weights()));
  }
  return sharded;
}

}  // namespace zinc
