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
