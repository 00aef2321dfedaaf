// A backend of several: a graph is cut into stages, each on one device (docs/adr/0043). Activations go from stage to
// stage through host memory. The cache of a layer lies with the stage that uses it; pages and slots have the same ids
// on every device. Draft graphs run whole, with their caches, on the last stage's device. The weights of routed experts
// in host memory are copied to the GPU, a layer at a time, for the whole chunks of prompts.
#pragma once

#include "backend/backend.h"
#include "graph/split_graph.h"

namespace zinc::split {

// Stage i begins at node cuts[i - 1] of the graph and runs on devices[i].
struct Stages {
  std::vector<int> cuts;
  std::vector<size_t> devices;
  // Tokens of the chunks of prompts whose routed experts a GPU computes with weights that are copied from host memory
  // (DeviceWeights::prompt_chunk_tokens); 0: none.
  int streamed_tokens = 0;
  bool streams_if_faster =
      true;  // only where copying a layer's experts takes less time than computing a chunk with them
  bool operator==(const Stages&) const = default;
};

// `graph` must outlive the result. REQUIRES: every device has a stage.
Result<std::unique_ptr<Backend>> make_split_backend(const Graph& graph, const Stages& stages,
                                                    std::vector<std::shared_ptr<Backend>> devices);

}  // namespace zinc::split
