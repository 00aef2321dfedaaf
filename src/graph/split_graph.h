// Cuts a graph into stages, each a Graph of its own, so that they can run on different devices (docs/adr/0043). Values
// that cross a cut leave a stage joined in its hidden(), and enter a later one through its hidden_in node.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"

namespace zinc {

struct GraphStage {
  Graph graph;
  // Values of the whole graph: the columns of the hidden_in node, and of hidden(). The last stage has no outputs; its
  // hidden() is the whole graph's.
  std::vector<Value> inputs, outputs;
  std::vector<Value> values;      // by value of the whole graph: the stage's; none: the stage does not have it
  std::vector<int32_t> nodes;     // by node of the stage: that of the whole graph; -1: added at the cut
  std::vector<int> cache_layers;  // that its nodes read or write, ascending
};

// The stages begin at node 0 and at `cuts`, in execution order. Fails if a value that crosses a cut has no row of
// floats per token. REQUIRES: cuts are ascending and inside the graph, which has no hidden_in node.
Result<std::vector<GraphStage>> split_graph(const Graph& graph, std::span<const int> cuts);

// The layer whose cache a node reads or writes; -1: none.
int cache_layer_of(const Node& node);
// The first node of every layer, except layers whose cache is used on both sides: the nodes where a graph can be cut
// into whole layers, each with its cache. The first layer's is the first.
std::vector<int> layer_cuts(const Graph& graph);

// The nodes of each layer's routed experts: from the choice of the experts to the sum of their outputs.
struct ExpertNodes {
  int layer = 0;
  int begin = 0, end = 0;
};
std::vector<ExpertNodes> expert_nodes(const Graph& graph);

}  // namespace zinc
