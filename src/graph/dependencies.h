// Data dependencies between nodes, and the longest paths through them. The graph lists nodes in execution order, so
// every edge leads from a lower to a higher index.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace zinc {

struct Edge {
  int from = 0, to = 0;  // node indices
  Value value;           // read by `to`; none: keys and values in the cache
};

// One edge per input produced by a node, in the order of nodes and inputs; a node that attends to another layer's cache
// has an edge from the last writer of that cache.
std::vector<Edge> edges_of(const Graph& graph);

struct Path {
  std::vector<int> nodes;  // first to last
  double time_s = 0;
};

// Per node: the number of nodes on the longest path that ends in it, itself included.
std::vector<int> node_depths(const Graph& graph, std::span<const Edge> edges);
// The critical path: the largest sum of times, given per node.
Path longest_path(std::span<const Edge> edges, std::span<const double> times_s);

}  // namespace zinc
