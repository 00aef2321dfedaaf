#include "backend/gpu/kernel_times.h"

namespace zinc::gpu {

std::vector<int32_t> node_indices(const Graph& graph, const FusedCall* call) {
  std::vector<int32_t> indices;
  if (!call) return indices;
  for (const Node* node : call->nodes) indices.push_back(static_cast<int32_t>(node - graph.nodes().data()));
  return indices;
}

}  // namespace zinc::gpu
