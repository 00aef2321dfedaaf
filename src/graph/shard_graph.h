// Divides a graph over devices for tensor parallelism (docs/adr/0058): each gets a Graph per stage, with its part of
// the weights and caches. The devices run a stage at the same time. Between stages, partial sums are added up in the
// order of the devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "graph/shard_layout.h"
#include "graph/weight_slices.h"

namespace zinc {

// A value of the whole graph that a device reads from an earlier stage or passes to later ones.
struct CrossingValue {
  Value value;
  bool is_sum = false;  // the sum of what the devices of `ShardedGraph::summed` passed
  size_t n_elems = 0;   // of a row: the device's part
  bool operator==(const CrossingValue&) const = default;
};

// What one device computes of a stage. No nodes: nothing.
struct GraphShard {
  Graph graph;
  std::vector<CrossingValue> inputs, outputs;  // the columns of the hidden_in node, and of hidden()
  std::vector<Value> values;                   // by value of the whole graph: the shard's; none: it does not have it
  std::vector<int32_t> nodes;                  // by node of the shard: that of the whole graph; -1: added
};

struct ShardedGraph {
  ShardLayout layout;
  std::vector<std::vector<GraphShard>> stages;  // [stage][device]; the last one is of the last device only
  std::vector<std::vector<LayerCache>> caches;  // [device][layer]: with the device's heads and channels
  std::vector<WeightSlices> weights;            // of each device

  // The devices that have a partial sum of the value, in the order in which these are added.
  std::vector<size_t> summed(Value v) const;
};

// REQUIRES: 2 to kMaxShards devices, and no hidden_in node. The mapped file must outlive the result, and the result the
// use of its graphs.
Result<std::unique_ptr<ShardedGraph>> shard_graph(const Graph& graph, size_t n_devices);

}  // namespace zinc
