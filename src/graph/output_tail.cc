#include "graph/output_tail.h"

#include <algorithm>

namespace zinc {
namespace {

bool needs_every_token(const Node& node) {
  switch (node.op) {
    case Op::embed:
    case Op::hidden_in:
    case Op::rope:
    case Op::attention:
    case Op::short_conv:
    case Op::delta_net:
      return true;
    default:
      return false;
  }
}

}  // namespace

OutputTail output_tail(const Graph& graph) {
  const std::span<const Node> nodes = graph.nodes();
  OutputTail tail;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (needs_every_token(nodes[i])) tail.begin = i + 1;
  }
  std::vector<bool> is_before_tail(static_cast<size_t>(graph.n_values()));
  for (const Node& node : nodes.first(tail.begin)) {
    for (const Value v : node.out) {
      if (v) is_before_tail[static_cast<size_t>(v.id)] = true;
    }
  }
  for (const Node& node : nodes.subspan(tail.begin)) {
    for (const Value v : node.in) {
      if (!v || !is_before_tail[static_cast<size_t>(v.id)]) continue;
      if (std::ranges::find(tail.inputs, v) == tail.inputs.end()) tail.inputs.push_back(v);
    }
  }
  return tail;
}

}  // namespace zinc
