#include "graph/cache_spec.h"

#include <map>

namespace zinc {

std::vector<PageGroup> page_groups(std::span<const LayerCache> layers) {
  std::map<int, PageGroup> by_window;  // 0, the unbounded group, sorts first
  for (size_t i = 0; i < layers.size(); ++i) {
    const AttentionCache& cache = layers[i].attention;
    if (cache.kv_heads == 0) continue;
    PageGroup& group = by_window[cache.window];
    group.window = cache.window;
    group.layers.push_back(static_cast<int>(i));
  }
  std::vector<PageGroup> groups;
  for (auto& [window, group] : by_window) groups.push_back(std::move(group));
  return groups;
}

size_t page_bytes(const PageGroup& group, std::span<const LayerCache> layers, const Format& kv_format) {
  size_t bytes = 0;
  for (int layer : group.layers) {
    const AttentionCache& cache = layers[static_cast<size_t>(layer)].attention;
    const size_t row =
        row_bytes(kv_format, static_cast<size_t>(cache.k_dim)) + row_bytes(kv_format, static_cast<size_t>(cache.v_dim));
    bytes += row * static_cast<size_t>(cache.kv_heads) * kPageTokens;
  }
  return bytes;
}

size_t state_bytes(std::span<const LayerCache> layers) {
  int64_t floats = 0;
  for (const LayerCache& layer : layers) floats += layer.recurrent.conv_floats() + layer.recurrent.delta_floats();
  return static_cast<size_t>(floats) * sizeof(float);
}

Status check_kv_blocks(const Format& kv_format, std::span<const LayerCache> layers) {
  for (const LayerCache& layer : layers) {
    const AttentionCache& kv = layer.attention;
    if (kv.k_dim % kv_format.block_elems == 0 && kv.v_dim % kv_format.block_elems == 0) continue;
    return fail(ErrorCode::unsupported,
                "--kv {} has blocks of {} elements, but this model's heads have {} key and {} value elements; use f16",
                kv_format.name, kv_format.block_elems, kv.k_dim, kv.v_dim);
  }
  return ok_status();
}

}  // namespace zinc
