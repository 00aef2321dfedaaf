#include "backend/gpu/kernel_times.h"

namespace zinc::gpu {

std::vector<int32_t> nodes_lowered_at(const Fusion& fusion, int node, bool is_decode) {
  if (node < 0) return {};
  if (const MoeDownCombine* moe = is_decode ? fusion.moe_down_at(node) : nullptr) {
    std::vector<int32_t> nodes = {moe->down};
    if (moe->shared >= 0) nodes.push_back(moe->shared);
    return nodes;
  }
  const MatmulGroup* group = fusion.matmuls_at(node);
  if (!group && is_decode) group = fusion.gate_up_at(node);
  if (group) return {group->nodes.begin(), group->nodes.end()};
  if (const AttentionGroup* attention = is_decode ? fusion.attention_at(node) : nullptr) return {attention->attention};
  if (const DeltaGroup* delta = is_decode ? fusion.delta_at(node) : nullptr) return {delta->delta};
  return {node};
}

}  // namespace zinc::gpu
