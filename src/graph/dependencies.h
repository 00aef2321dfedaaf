// Which node waits for which, and the longest chains of such waits. The graph lists nodes in execution order, so every
// edge leads from a lower to a higher index.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace zinc {

struct Edge {
  int from = 0, to = 0;  // node indices
  Value value;           // what `to` reads; none: keys and values `from` left in the cache
};

// One edge per input that a node made, in the order of nodes and inputs; where a node attends to a cache it does not
// write itself, one from the node that wrote it last.
std::vector<Edge> edges_of(const Graph& graph);

struct Chain {
  std::vector<int> nodes;  // first to last
  double time_s = 0;
};

// Per node: the number of nodes on the longest chain that ends in it, itself included.
std::vector<int> chain_depths(const Graph& graph, std::span<const Edge> edges);
// The chain with the largest sum of times, given per node.
Chain slowest_chain(std::span<const Edge> edges, std::span<const double> times_s);

}  // namespace zinc
