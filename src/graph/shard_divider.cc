#include "graph/shard_divider.h"

#include <algorithm>

#include "base/ceil_div.h"

namespace zinc {

ShardDivider::ShardDivider(const Graph& graph, ShardLayout& layout)
    : graph_(graph), layout_(layout), producers_(static_cast<size_t>(graph.n_values()), -1) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const Value v : graph.nodes()[i].out) {
      if (v) producers_[static_cast<size_t>(v.id)] = static_cast<int>(i);
    }
  }
}

// Whether the value is computed from matmuls alone, each element from few of their rows; notes the node whose heads
// are between.
bool ShardDivider::trace(Value v, Chain& chain) const {
  const size_t i = static_cast<size_t>(producers_[static_cast<size_t>(v.id)]);
  const Node& node = graph_.nodes()[i];
  const auto trace_inputs = [&](size_t n) {
    for (size_t k = 0; k < n; ++k) {
      if (node.in[k] && !graph_.info(node.in[k]).is_weight() && !trace(node.in[k], chain)) return false;
    }
    return true;
  };
  switch (node.op) {
    case Op::linear:
    case Op::moe_linear:
      return !layout_.columns(i);
    case Op::norm:
      return graph_.info(v).shape.n_dims() == 2 && trace_inputs(1);
    case Op::attention:
      if (chain.attention >= 0 || chain.delta >= 0) return false;
      chain.attention = static_cast<int>(i);
      return trace_inputs(3);
    case Op::delta_net:
      if (chain.attention >= 0 || chain.delta >= 0) return false;
      chain.delta = static_cast<int>(i);
      return trace_inputs(5);
    case Op::rope:
    case Op::gated_act:
    case Op::short_conv:
    case Op::mul:
    case Op::scale:
    case Op::softcap:
    case Op::relu2:
    case Op::view:
    case Op::slice:
    case Op::concat:
      return trace_inputs(2);
    default:
      return false;
  }
}

void ShardDivider::divide() {
  const std::span<const Node> nodes = graph_.nodes();
  std::map<int, CacheUse> caches;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (node.op == Op::attention) {
      const int layer = node.as<AttentionParams>().cache_layer;
      caches[layer].attentions.push_back(i);
      const int64_t n_heads = graph_.caches()[static_cast<size_t>(layer)].attention.kv_heads;
      layout_.heads_[i].assign(layout_.n_devices(), IndexRanges(0, n_heads));
    }
    if (node.op == Op::delta_net) {
      layout_.heads_[i].assign(layout_.n_devices(), IndexRanges(0, graph_.info(node.in[0]).shape[0]));
    }
    if (node.op != Op::linear && node.op != Op::moe_linear) continue;
    Chain chain{.matmul = i};
    if (!trace(node.in[0], chain)) continue;
    const auto fits = [&](int anchor) {  // its output, one to one, is the input
      return graph_.info(nodes[static_cast<size_t>(anchor)].out[0]).shape.elems() ==
             graph_.info(node.in[0]).shape.elems();
    };
    if (chain.attention >= 0) {
      if (!fits(chain.attention)) continue;
      caches[nodes[static_cast<size_t>(chain.attention)].as<AttentionParams>().cache_layer].chains.push_back(chain);
      layout_.columns_[i].assign(1, IndexRanges(0, 1));  // keeps later matmuls from being traced through this one
    } else if (chain.delta >= 0) {
      if (fits(chain.delta)) divide_delta(chain);
    } else {
      divide_elements(chain);
    }
  }
  for (const auto& [layer, use] : caches) {
    for (const Chain& chain : use.chains) layout_.columns_[chain.matmul].clear();
    if (use.chains.size() == use.attentions.size()) divide_attention(use);
  }
}

int64_t ShardDivider::block_elems(size_t matmul) const {
  return graph_.info(graph_.nodes()[matmul].in[1]).weight.format->block_elems;
}

std::vector<int64_t> ShardDivider::bounds(int64_t n_units, int64_t n_parts) const {
  std::vector<int64_t> out;
  for (int64_t d = 0; d <= n_parts; ++d) out.push_back(ceil_div(n_units * d, n_parts));
  return out;
}

void ShardDivider::divide_elements(const Chain& chain) {
  constexpr int64_t kPreferredUnit = 256, kLeastUnit = 32;  // of formats without blocks too: kernels like whole tiles
  const int64_t n = graph_.info(graph_.nodes()[chain.matmul].in[0]).shape.inner();
  const int64_t n_devices = static_cast<int64_t>(layout_.n_devices());
  int64_t unit = block_elems(chain.matmul);
  if (unit < kLeastUnit && n % kLeastUnit == 0 && n / kLeastUnit >= n_devices) unit = kLeastUnit;
  constexpr int64_t kUnitsPerDevice = 8;
  if (kPreferredUnit % unit == 0 && n % kPreferredUnit == 0 && n / kPreferredUnit >= kUnitsPerDevice * n_devices) {
    unit = kPreferredUnit;
  }
  const std::vector<int64_t> at = bounds(n / unit, n_devices);
  for (size_t d = 0; d < layout_.n_devices(); ++d) {
    layout_.columns_[chain.matmul].emplace_back(at[d] * unit, at[d + 1] * unit);
  }
}

// By key heads with their queries; if there are fewer than devices, several devices share one.
void ShardDivider::divide_attention(const CacheUse& use) {
  const auto group_of = [&](const Chain& chain, const AttentionCache& kv) {
    return graph_.info(graph_.nodes()[static_cast<size_t>(chain.attention)].in[0]).shape[0] / kv.kv_heads;
  };
  const int layer = graph_.nodes()[use.attentions[0]].as<AttentionParams>().cache_layer;
  const AttentionCache& kv = graph_.caches()[static_cast<size_t>(layer)].attention;
  int64_t unit = 1;
  const auto is_whole_blocks = [&](const Chain& chain) {
    return unit * group_of(chain, kv) * kv.v_dim % block_elems(chain.matmul) == 0;
  };
  while (unit < kv.kv_heads && !std::ranges::all_of(use.chains, is_whole_blocks)) ++unit;
  const int64_t n_units = ceil_div(int64_t{kv.kv_heads}, unit);
  const int64_t n_devices = static_cast<int64_t>(layout_.n_devices());
  if (n_units < n_devices && share_key_heads(use, kv.kv_heads)) return;
  const std::vector<int64_t> at = bounds(n_units, n_devices);
  for (const Chain& chain : use.chains) {
    for (size_t d = 0; d < layout_.n_devices(); ++d) {
      const IndexRanges heads(at[d] * unit, std::min<int64_t>(at[d + 1] * unit, kv.kv_heads));
      layout_.heads_[static_cast<size_t>(chain.attention)][d] = heads;
      layout_.columns_[chain.matmul].push_back(heads.scaled(group_of(chain, kv) * kv.v_dim));
    }
  }
}

// Each key head's queries over as many devices as there are for it. False: they cannot be divided so.
bool ShardDivider::share_key_heads(const CacheUse& use, int64_t n_key_heads) {
  const int64_t n_devices = static_cast<int64_t>(layout_.n_devices());
  if (n_devices % n_key_heads != 0) return false;
  const int64_t n_sharing = n_devices / n_key_heads;
  std::vector<int64_t> units;  // of each chain: query heads that are whole blocks
  for (const Chain& chain : use.chains) {
    const Node& attention = graph_.nodes()[static_cast<size_t>(chain.attention)];
    const int64_t group = graph_.info(attention.in[0]).shape[0] / n_key_heads;
    const int64_t head_dim = graph_.info(attention.out[0]).shape.elems() / (group * n_key_heads);
    int64_t unit = 1;
    while (unit < group && unit * head_dim % block_elems(chain.matmul) != 0) ++unit;
    if (group % unit != 0 || group / unit < n_sharing) return false;
    units.push_back(unit * head_dim);
  }
  for (size_t c = 0; c < use.chains.size(); ++c) {
    const Chain& chain = use.chains[c];
    const int64_t n = graph_.info(graph_.nodes()[chain.matmul].in[0]).shape.elems() / n_key_heads;
    const std::vector<int64_t> at = bounds(n / units[c], n_sharing);
    for (int64_t d = 0; d < n_devices; ++d) {
      const int64_t head = d / n_sharing;
      const size_t part = static_cast<size_t>(d % n_sharing);
      layout_.heads_[static_cast<size_t>(chain.attention)][static_cast<size_t>(d)] = IndexRanges(head, head + 1);
      layout_.columns_[chain.matmul].emplace_back(head * n + at[part] * units[c], head * n + at[part + 1] * units[c]);
    }
  }
  return true;
}

// By key heads with their value heads, which are next to each other or, if they are shared cyclically, one in each
// cycle.
void ShardDivider::divide_delta(const Chain& chain) {
  const size_t i = static_cast<size_t>(chain.delta);
  const Node& node = graph_.nodes()[i];
  const int64_t n_key_heads = graph_.info(node.in[0]).shape[0];
  const Shape& values = graph_.info(node.in[2]).shape;
  const bool is_cyclic = node.as<DeltaNetParams>().sharing == HeadSharing::cyclic;
  const int64_t n_cycles = is_cyclic ? values[0] / n_key_heads : 1;
  const int64_t width = values.elems() / n_key_heads / n_cycles;  // columns of a key head in a cycle
  const int64_t block = block_elems(chain.matmul);
  int64_t unit = 1;
  while (unit < n_key_heads && unit * width % block != 0) ++unit;
  if (n_key_heads * width % block != 0) unit = n_key_heads;  // a cycle is not whole blocks
  const std::vector<int64_t> at = bounds(ceil_div(n_key_heads, unit), static_cast<int64_t>(layout_.n_devices()));
  for (size_t d = 0; d < layout_.n_devices(); ++d) {
    const IndexRanges heads(at[d] * unit, std::min(at[d + 1] * unit, n_key_heads));
    IndexRanges columns;
    for (int64_t cycle = 0; cycle < n_cycles; ++cycle) {
      columns.add(heads.scaled(width).shifted(cycle * n_key_heads * width));
    }
    layout_.heads_[i][d] = heads;
    layout_.columns_[chain.matmul].push_back(std::move(columns));
  }
}

}  // namespace zinc
