// Exports the graph: JSON with every node, edge and cost, and DOT for Graphviz. Names come from the file; both writers
// escape them.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "graph/cost.h"
#include "graph/graph.h"

namespace zinc {

// Keys: title, step, device, nodes (id, op, layer or null, inputs in the op's order with null for absent ones, outputs,
// params, cost), edges, op_counts, depth (length, widths), critical_path, hotspots (the slowest nodes, at most
// kHotspots), by_op, by_layer, totals, memory. Shapes are of one row; "rows" says which rows: tokens or outputs.
json::value graph_to_json(const Graph& graph, const GraphCost& cost, std::string_view title);
inline constexpr size_t kHotspots = 20;

struct DotOptions {
  bool weights = false;  // draw a box for each weight that a node reads
};
// One cluster per layer; views are omitted (edges pass through them).
std::string graph_to_dot(const Graph& graph, std::string_view title, const DotOptions& options);

}  // namespace zinc
