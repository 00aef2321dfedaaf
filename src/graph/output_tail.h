// The last nodes of a graph, after the last one that needs a row of every token: it writes the cache, or reads a
// token, its position or its sequence. In a step whose hidden states are not wanted, they need only the rows of
// requested outputs: the output projection and the FFN of the last layer, the final norm, the LM head.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace zinc {

struct OutputTail {
  size_t begin = 0;           // the first of these nodes
  std::vector<Value> inputs;  // [T]: values of earlier nodes that they read
};
OutputTail output_tail(const Graph& graph);

}  // namespace zinc
