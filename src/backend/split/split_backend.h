// A backend of several: a graph is cut into stages, each on one device (docs/adr/0043). Activations go from stage to
// stage through host memory. The cache of a layer lies with the stage that uses it; pages and slots have the same ids
// on every device. Draft graphs run whole, with their caches, on the last stage's device.
#pragma once

#include "backend/backend.h"
#include "graph/split_graph.h"

namespace zinc::split {

// Stage i begins at node cuts[i - 1] of the graph and runs on devices[i].
struct Stages {
  std::vector<int> cuts;
  std::vector<size_t> devices;
  bool operator==(const Stages&) const = default;
};

// `graph` must outlive the result. REQUIRES: every device has a stage.
Result<std::unique_ptr<Backend>> make_split_backend(const Graph& graph, const Stages& stages,
                                                    std::vector<std::shared_ptr<Backend>> devices);

}  // namespace zinc::split
