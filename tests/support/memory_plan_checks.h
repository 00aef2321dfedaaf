// Brute-force checks of a MemoryPlan: compares the memory of every pair of values that are live at the same node. An
// empty result means no overlap.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "graph/memory_plan.h"

namespace zinc {

struct PlanRows {
  int tokens = 1, outputs = 1;
};

// An activation with its own storage: its memory range and its live range in nodes.
struct PlannedValue {
  int id = 0, first = 0, last = 0;
  size_t begin = 0, end = 0;
};

inline std::vector<PlannedValue> planned_values(const Graph& graph, const MemoryPlan& plan, PlanRows rows) {
  const int n_nodes = static_cast<int>(graph.nodes().size());
  std::vector<PlannedValue> values;
  std::vector<int> source(static_cast<size_t>(graph.n_values()), -1);  // index into `values`, through views
  for (int i = 0; i < n_nodes; ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    for (Value v : node.in) {
      if (v && source[static_cast<size_t>(v.id)] >= 0) {
        values[static_cast<size_t>(source[static_cast<size_t>(v.id)])].last = i;
      }
    }
    for (Value v : node.out) {
      if (!v) continue;
      if (node.op == Op::view) {
        source[static_cast<size_t>(v.id)] = source[static_cast<size_t>(node.in[0].id)];
        continue;
      }
      const ValueInfo& info = graph.info(v);
      const size_t n_rows = static_cast<size_t>(info.rows == Rows::outputs ? rows.outputs : rows.tokens);
      const size_t begin = plan.offsets[static_cast<size_t>(v.id)];
      source[static_cast<size_t>(v.id)] = static_cast<int>(values.size());
      values.push_back({v.id, i, i, begin, begin + n_rows * static_cast<size_t>(info.shape.elems())});
    }
  }
  for (Value v : {graph.logits(), graph.hidden()}) {
    if (v) values[static_cast<size_t>(source[static_cast<size_t>(v.id)])].last = n_nodes;
  }
  return values;
}

inline std::string first_overlap(const std::vector<PlannedValue>& values, size_t n_elems, bool at_any_time) {
  for (size_t a = 0; a < values.size(); ++a) {
    if (values[a].end > n_elems) return fmt::format("value {} is outside of the arena", values[a].id);
    for (size_t b = 0; b < a; ++b) {
      const bool are_live_together =
          at_any_time || (values[a].first <= values[b].last && values[b].first <= values[a].last);
      if (are_live_together && values[a].begin < values[b].end && values[b].begin < values[a].end) {
        return fmt::format("values {} and {} overlap", values[b].id, values[a].id);
      }
    }
  }
  return "";
}

inline std::string overlap_of_live_values(const Graph& graph, const MemoryPlan& plan, PlanRows rows) {
  return first_overlap(planned_values(graph, plan, rows), plan.n_elems, false);
}

inline std::string overlap_of_any_values(const Graph& graph, const MemoryPlan& plan, PlanRows rows) {
  return first_overlap(planned_values(graph, plan, rows), plan.n_elems, true);
}

}  // namespace zinc
