// A backend of several devices that compute every layer together (tensor parallelism, docs/adr/0058): each has some
// heads, some of the FFN's elements and their weights and caches. Their partial sums are added in host memory, in the
// order of the devices, so that outputs are reproducible. Draft graphs run whole on the last device, which also embeds
// and has the output head.
#pragma once

#include "backend/backend.h"
#include "graph/shard_graph.h"

namespace zinc::split {

// `graph` must outlive the result. REQUIRES: one device per shard.
std::unique_ptr<Backend> make_tensor_backend(const Graph& graph, std::shared_ptr<ShardedGraph> shards,
                                             std::vector<std::shared_ptr<Backend>> devices);

}  // namespace zinc::split
