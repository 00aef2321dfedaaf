#include "graph/shard_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "graph/shard_divider.h"

namespace zinc {
namespace {

bool is_activation(const Graph& graph, Value v) { return v && !graph.info(v).is_weight(); }

}  // namespace

ShardLayout::ShardLayout(const Graph& graph, size_t n_devices)
    : graph_(&graph),
      n_devices_(n_devices),
      stages_(graph.nodes().size()),
      columns_(graph.nodes().size()),
      heads_(graph.nodes().size()),
      partial_on_(static_cast<size_t>(graph.n_values())),
      sum_stages_(partial_on_.size(), -1),
      produced_at_(partial_on_.size(), -1),
      sum_needed_(partial_on_.size()),
      is_per_expert_(partial_on_.size()),
      part_needed_(n_devices, std::vector<bool>(partial_on_.size())),
      runs_(n_devices, std::vector<bool>(graph.nodes().size())),
      elems_(n_devices, std::vector<IndexRanges>(partial_on_.size())) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    for (const Value v : node.out) {
      if (v) produced_at_[index(v)] = static_cast<int>(i);
    }
    const bool keeps_rows = node.op == Op::gated_act || node.op == Op::slice ||
                            std::ranges::find(kUnaryOps, node.op) != std::end(kUnaryOps);
    const bool is_of_experts = keeps_rows && std::ranges::any_of(node.in, [&](Value v) {
                                 return is_activation(graph, v) && is_per_expert_[index(v)];
                               });
    if (node.op == Op::moe_linear || is_of_experts) is_per_expert_[index(node.out[0])] = true;
  }
}

Result<ShardLayout> ShardLayout::make(const Graph& graph, size_t n_devices) {
  ZINC_CHECK(n_devices >= 2 && n_devices <= kMaxShards);
  ShardLayout layout(graph, n_devices);
  ShardDivider(graph, layout).divide();
  layout.find_partial_values();
  layout.find_needs();
  if (Status s = layout.check_crossing_values(); !s.ok()) return s.error();
  return layout;
}

size_t ShardLayout::first_device(Value partial) const {
  return static_cast<size_t>(std::countr_zero(partial_on_[index(partial)]));
}

// ---- partial values and stages ----

// Whether the node's output for a sum is the sum of its outputs for the partial sums.
bool ShardLayout::accepts_partial(const Node& node, size_t input) const {
  switch (node.op) {
    case Op::add:
    case Op::scale:
    case Op::view:
    case Op::slice:
      return true;
    case Op::mul:
    case Op::moe_combine:
      return input == 0;
    case Op::gated_act:
      return input == 1 && node.as<GatedActParams>().act != Act::swiglu_oai;
    default:
      return false;
  }
}

void ShardLayout::find_partial_values() {
  for (size_t i = 0; i < graph_->nodes().size(); ++i) choose_partial(i);
}

void ShardLayout::choose_partial(size_t i) {
  const Node& node = graph_->nodes()[i];
  const auto is_pending = [&](Value v) {
    return is_activation(*graph_, v) && is_partial(v) && sum_stages_[index(v)] < 0;
  };
  for (size_t k = 0; k < node.in.size(); ++k) {
    if (!is_pending(node.in[k]) || accepts_partial(node, k)) continue;
    cut_before(i);
    break;
  }
  stages_[i] = n_stages_ - 1;
  uint32_t devices = 0;
  if (node.op == Op::embed) devices = 1u << root();  // the table is on one device only
  for (size_t d = 0; d < columns_[i].size(); ++d) devices |= columns_[i][d].empty() ? 0u : 1u << d;
  for (const Value v : node.in) {
    if (is_pending(v)) devices |= partial_on_[index(v)];
  }
  partial_on_[index(node.out[0])] = devices;
}

// From this node on, the sums of all partial values whose sum some node needs are used.
void ShardLayout::cut_before(size_t cut) {
  const std::span<const Node> nodes = graph_->nodes();
  for (size_t i = cut; i < nodes.size(); ++i) {
    for (size_t k = 0; k < nodes[i].in.size(); ++k) {
      const Value v = nodes[i].in[k];
      if (!is_activation(*graph_, v) || !is_partial(v) || accepts_partial(nodes[i], k)) continue;
      if (produced_at_[index(v)] < static_cast<int>(cut) && sum_stages_[index(v)] < 0)
        sum_stages_[index(v)] = n_stages_;
    }
  }
  ++n_stages_;
}

// ---- what each device computes ----

void ShardLayout::find_needs() {
  const std::span<const Node> nodes = graph_->nodes();
  const size_t last = nodes.size() - 1;
  elems_[root()][index(nodes[last].out[0])] = IndexRanges(0, 1);  // the sampled token
  for (const Value v : {graph_->logits(), graph_->hidden()}) {
    if (v) need_all(root(), last, v);
  }
  for (size_t i = nodes.size(); i-- > 0;) {
    const Value out = nodes[i].out[0];
    for (size_t d = 0; d < n_devices_; ++d) {
      if (is_partial(out)) {
        runs_[d][i] = is_partial_on(out, d) && (sum_needed_[index(out)] || part_needed_[d][index(out)]);
        if (runs_[d][i]) need_inputs_of_partial(d, i);
        continue;
      }
      for (const Value other : nodes[i].out) {  // router weights, if only they are read
        if (other && !elems_[d][index(other)].empty()) runs_[d][i] = true;
      }
      if (runs_[d][i]) need_inputs(d, i, elems_[d][index(out)]);
    }
  }
}

void ShardLayout::need_all(size_t device, size_t node, Value v) {
  const Shape& shape = graph_->info(v).shape;
  need(device, node, v, IndexRanges(0, is_per_expert(v) ? shape.inner() : shape.elems()));
}

void ShardLayout::need(size_t device, size_t node, Value v, const IndexRanges& elems) {
  if (!is_activation(*graph_, v)) return;
  if (reads_sum(node, v)) {
    sum_needed_[index(v)] = true;
  } else if (is_partial(v)) {
    part_needed_[device][index(v)] = true;
  } else {
    const Shape& shape = graph_->info(v).shape;
    const int64_t row = shape.n_dims() > 1 && !is_per_expert(v) ? shape.inner() : 1;
    elems_[device][index(v)].add(elems.divided(row).scaled(row));
  }
}

void ShardLayout::need_inputs_of_partial(size_t device, size_t i) {
  const Node& node = graph_->nodes()[i];
  if (const std::vector<IndexRanges>* split = columns(i)) {
    need(device, i, node.in[0], (*split)[device]);
    if (node.op == Op::moe_linear) need_all(device, i, node.in[2]);
    return;
  }
  for (const Value v : node.in) {
    if (!is_activation(*graph_, v)) continue;
    const bool is_part = is_partial(v) && !reads_sum(i, v);
    if (is_part && !is_partial_on(v, device)) continue;
    if (!is_part && node.op == Op::add && first_device(node.out[0]) != device) continue;
    need_all(device, i, v);
  }
}

void ShardLayout::need_inputs(size_t device, size_t i, const IndexRanges& wanted) {
  const Node& node = graph_->nodes()[i];
  const Shape& shape = graph_->info(node.out[0]).shape;
  const bool has_rows = shape.n_dims() > 1 && !is_per_expert(node.out[0]);
  IndexRanges& out = elems_[device][index(node.out[0])];
  const auto all = [&] { out = IndexRanges(0, is_per_expert(node.out[0]) ? shape.inner() : shape.elems()); };
  switch (node.op) {
    case Op::linear:
      if (graph_->info(node.in[0]).shape.n_dims() > 1) all();
      return need_all(device, i, node.in[0]);
    case Op::moe_linear:
      need_all(device, i, node.in[0]);
      return need_all(device, i, node.in[2]);
    case Op::attention:
    case Op::delta_net:
      return need_heads(device, i);
    case Op::norm:
      if (shape.n_dims() < 2) all();
      return need(device, i, node.in[0], out);
    case Op::slice: {
      const int64_t begin = node.as<SliceParams>().begin, row = graph_->info(node.in[0]).shape.inner();
      return need(device, i, node.in[0], has_rows ? wanted.divided(shape.inner()).scaled(row) : wanted.shifted(begin));
    }
    case Op::concat: {
      const int64_t a = graph_->info(node.in[0]).shape.inner(), b = graph_->info(node.in[1]).shape.inner();
      const IndexRanges rows = wanted.divided(shape.inner());
      need(device, i, node.in[0], has_rows ? rows.scaled(a) : wanted.within({0, a}));
      return need(device, i, node.in[1], has_rows ? rows.scaled(b) : wanted.within({a, a + b}).shifted(-a));
    }
    case Op::gated_act:
      if (graph_->info(node.in[0]).shape.elems() == 1) {
        need_all(device, i, node.in[0]);
      } else {
        need(device, i, node.in[0], wanted);
      }
      return need(device, i, node.in[1], wanted);
    case Op::moe_route:
      for (const Value v : node.out) elems_[device][index(v)] = IndexRanges(0, graph_->info(v).shape.elems());
      return need_all(device, i, node.in[0]);
    case Op::rows:
    case Op::sample:
    case Op::moe_combine:
      all();
      for (const Value v : node.in) {
        if (is_activation(*graph_, v)) need_all(device, i, v);
      }
      return;
    default:  // element by element
      for (const Value v : node.in) {
        if (is_activation(*graph_, v)) need(device, i, v, out);
      }
  }
}

void ShardLayout::need_heads(size_t device, size_t i) {
  const Node& node = graph_->nodes()[i];
  const auto shape = [&](Value v) -> const Shape& { return graph_->info(v).shape; };
  IndexRanges& out = elems_[device][index(node.out[0])];
  if (node.op == Op::attention) {
    const AttentionCache& kv = graph_->caches()[static_cast<size_t>(node.as<AttentionParams>().cache_layer)].attention;
    const IndexRanges query_heads = out.divided(kv.v_dim);
    out = query_heads.scaled(kv.v_dim);
    need(device, i, node.in[0], query_heads.scaled(kv.k_dim));
    if (!node.in[1]) return;
    need(device, i, node.in[1], heads(device, i).scaled(kv.k_dim));
    return need(device, i, node.in[2], heads(device, i).scaled(kv.v_dim));
  }
  const IndexRanges value_heads = out.divided(shape(node.in[2]).inner());
  for (const size_t k : {0u, 1u}) need(device, i, node.in[k], heads(device, i).scaled(shape(node.in[k]).inner()));
  need(device, i, node.in[2], out);
  for (const size_t k : {3u, 4u}) need(device, i, node.in[k], value_heads);
}

// ---- what is reported ----

// What a device passes from stage to stage are rows of floats. The devices' heads of a layer must fit its cache.
Status ShardLayout::check_crossing_values() const {
  const std::span<const Node> nodes = graph_->nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const Value v : nodes[i].in) {
      if (!is_activation(*graph_, v)) continue;
      const ValueInfo& info = graph_->info(v);
      if (stages_[static_cast<size_t>(produced_at_[index(v)])] == stages_[i]) continue;
      if (info.rows == Rows::tokens && info.element == Element::f32) continue;
      return fail(
          ErrorCode::unsupported,
          "the model cannot be divided for tensor parallelism: {} in layer {} reads a value across devices that "
          "is not a row of floats per token; use --split layers",
          op_name(nodes[i].op), nodes[i].layer);
    }
    if (nodes[i].op != Op::attention) continue;
    const AttentionCache& kv =
        graph_->caches()[static_cast<size_t>(nodes[i].as<AttentionParams>().cache_layer)].attention;
    const int64_t group = graph_->info(nodes[i].in[0]).shape[0] / kv.kv_heads;
    for (size_t d = 0; d < n_devices_; ++d) {
      if (!runs_[d][i]) continue;
      const IndexRanges query_heads = elems(d, nodes[i].out[0]).divided(kv.v_dim);
      if (query_heads.divided(group) == heads(d, i) && query_heads.size() % heads(d, i).size() == 0) continue;
      return fail(ErrorCode::unsupported,
                  "the model cannot be divided for tensor parallelism: the heads of layer {} do not fit its KV cache; "
                  "use --split layers",
                  nodes[i].layer);
    }
  }
  return ok_status();
}

std::vector<std::string> ShardLayout::notes() const {
  std::map<std::pair<std::string, size_t>, int> n_layers;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const size_t n_used = static_cast<size_t>(std::popcount(partial_on_[index(graph_->nodes()[i].out[0])]));
    if (columns_[i].empty() || n_used == n_devices_) continue;
    std::string name = graph_->info(graph_->nodes()[i].in[1]).name;
    if (name.starts_with("blk.")) name = name.substr(name.find('.', 4) + 1);
    ++n_layers[{name, n_used}];
  }
  std::vector<std::string> notes;
  for (const auto& [matrix, n] : n_layers) {
    notes.push_back(
        fmt::format("{} of {} layers: on {} of {} devices, because its blocks or heads are not enough for all",
                    matrix.first, n, matrix.second, n_devices_));
  }
  return notes;
}

}  // namespace zinc
