#include "backend/gpu/graph_uses.h"

namespace zinc::gpu {

GraphUses::GraphUses(const Graph& graph, bool keeps_values) : graph_(graph) {
  const size_t n_values = static_cast<size_t>(graph.n_values());
  storage_roots_.resize(n_values);
  producers_.resize(n_values);
  readers_.resize(n_values);
  is_host_read_.assign(n_values, keeps_values);
  for (size_t i = 0; i < n_values; ++i) storage_roots_[i] = static_cast<int32_t>(i);
  for (const Node& node : graph.nodes()) {
    for (Value v : node.out) {
      if (v) producers_[static_cast<size_t>(v.id)] = &node;
    }
    if (node.op == Op::view) {
      storage_roots_[static_cast<size_t>(node.out[0].id)] = storage_root(node.in[0]);
      continue;
    }
    for (Value v : node.in) {
      if (v && !graph.info(v).is_weight()) readers_[static_cast<size_t>(storage_root(v))].push_back(&node);
    }
  }
  for (Value v : {graph.logits(), graph.hidden()}) {
    if (v) is_host_read_[static_cast<size_t>(storage_root(v))] = true;
  }
}

const Node* GraphUses::only_reader(Value v) const {
  return readers(v).size() == 1 && !is_host_read(v) ? readers(v).front() : nullptr;
}

}  // namespace zinc::gpu
