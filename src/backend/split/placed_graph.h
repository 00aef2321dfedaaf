// A graph in stages, with the device of each.
#pragma once

#include <algorithm>
#include <vector>

#include "graph/split_graph.h"

namespace zinc::split {

struct PlacedGraph {
  const Graph& graph;
  std::vector<GraphStage> stages;
  std::vector<size_t> devices;  // of each stage
  size_t n_devices = 0;
  int streamed_tokens = 0;  // Stages::streamed_tokens

  // The stages of routed experts that a GPU computes for whole chunks of a prompt: those between two stages of it.
  bool is_streamed(size_t s) const {
    const auto multiplies_experts = [](const Node& node) { return node.op == Op::moe_linear; };
    return streamed_tokens > 0 && s > 0 && s + 1 < stages.size() && devices[s] != devices[s - 1] &&
           devices[s - 1] == devices[s + 1] && stages[s].cache_layers.empty() &&
           std::ranges::any_of(stages[s].graph.nodes(), multiplies_experts);
  }
  size_t streaming_device(size_t s) const { return devices[s - 1]; }  // REQUIRES: is_streamed(s)

  size_t last_device() const { return devices.back(); }

  // The device of a layer's cache. Layers that only a draft graph has are on the last device.
  size_t cache_device(int layer) const {
    for (size_t s = 0; s < stages.size(); ++s) {
      if (std::ranges::binary_search(stages[s].cache_layers, layer)) return devices[s];
    }
    return last_device();
  }
};

}  // namespace zinc::split
