#include "graph/dependencies.h"

#include <algorithm>
#include <map>

namespace zinc {

std::vector<Edge> edges_of(const Graph& graph) {
  std::vector<Edge> edges;
  std::vector<int> producer(static_cast<size_t>(graph.n_values()), -1);
  std::map<int, int> cache_writer;  // layer -> node
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    for (Value v : node.in) {
      if (v && producer[static_cast<size_t>(v.id)] >= 0) edges.push_back({producer[static_cast<size_t>(v.id)], i, v});
    }
    if (node.op == Op::attention) {
      const int layer = node.as<AttentionParams>().cache_layer;
      if (node.in[1]) {
        cache_writer[layer] = i;
      } else if (const auto writer = cache_writer.find(layer); writer != cache_writer.end()) {
        edges.push_back({writer->second, i, {}});
      }
    }
    for (Value v : node.out) {
      if (v) producer[static_cast<size_t>(v.id)] = i;
    }
  }
  return edges;
}

// Edges are sorted by `to`, so one pass sees every predecessor finished.
std::vector<int> node_depths(const Graph& graph, std::span<const Edge> edges) {
  std::vector<int> depths(graph.nodes().size(), 1);
  for (const Edge& edge : edges) {
    int& depth = depths[static_cast<size_t>(edge.to)];
    depth = std::max(depth, depths[static_cast<size_t>(edge.from)] + 1);
  }
  return depths;
}

Path longest_path(std::span<const Edge> edges, std::span<const double> times_s) {
  Path path;
  if (times_s.empty()) return path;
  std::vector<double> ends(times_s.begin(), times_s.end());  // time of the slowest path that ends in each node
  std::vector<int> before(times_s.size(), -1);
  for (const Edge& edge : edges) {
    const size_t from = static_cast<size_t>(edge.from), to = static_cast<size_t>(edge.to);
    const double end = ends[from] + times_s[to];
    if (before[to] >= 0 && end <= ends[to]) continue;
    ends[to] = end;
    before[to] = edge.from;
  }
  const auto last = std::ranges::max_element(ends);
  path.time_s = *last;
  for (int i = static_cast<int>(last - ends.begin()); i >= 0; i = before[static_cast<size_t>(i)]) {
    path.nodes.push_back(i);
  }
  std::ranges::reverse(path.nodes);
  return path;
}

}  // namespace zinc
