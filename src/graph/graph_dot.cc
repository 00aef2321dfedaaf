// graph_to_dot (graph_export.h).
#include <fmt/format.h>

#include <map>
#include <numeric>
#include <vector>

#include "base/utf8.h"
#include "graph/dependencies.h"
#include "graph/graph_export.h"

namespace zinc {
namespace {

// A DOT string: quotes and backslashes escaped, control characters as spaces.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : replace_invalid_utf8(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

class DotWriter {
 public:
  DotWriter(const Graph& graph, const DotOptions& options) : graph_(graph), options_(options) {}

  std::string write(std::string_view title) {
    out_ = fmt::format("digraph {} {{\n", quoted(title));
    out_ += "  rankdir=TB;\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n  edge [fontsize=8];\n";
    write_clusters();
    write_edges();
    return out_ + "}\n";
  }

 private:
  bool is_drawn(int node) const { return graph_.nodes()[static_cast<size_t>(node)].op != Op::view; }

  void write_clusters() {
    std::map<int, std::vector<int>> by_layer;
    for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
      by_layer[graph_.nodes()[static_cast<size_t>(i)].layer].push_back(i);
    }
    for (const auto& [layer, nodes] : by_layer) {
      const char* margin = layer < 0 ? "  " : "    ";
      if (layer >= 0) out_ += fmt::format("  subgraph cluster_{0} {{\n    label=\"layer {0}\";\n", layer);
      for (int i : nodes) write_node(i, margin);
      if (layer >= 0) out_ += "  }\n";
    }
  }

  void write_node(int i, std::string_view margin) {
    if (!is_drawn(i)) return;
    const Node& node = graph_.nodes()[static_cast<size_t>(i)];
    const ValueInfo& out = graph_.info(node.out[0]);
    std::string label = fmt::format("{} {}", op_name(node.op), out.shape.to_string());
    if (!out.name.empty()) label += " " + out.name;
    out_ += fmt::format("{}n{} [label={}];\n", margin, i, quoted(label));
    if (!options_.weights) return;
    for (Value v : node.in) {
      if (v && graph_.info(v).is_weight()) write_weight(i, v, margin);
    }
  }

  // A weight read by two nodes (a tied embedding) is drawn at each.
  void write_weight(int i, Value v, std::string_view margin) {
    const ValueInfo& info = graph_.info(v);
    const std::string label = fmt::format("{} {} {}", info.name, info.weight.format->name, info.shape.to_string());
    out_ += fmt::format("{}w{}_{} [label={}, shape=note, style=filled, fillcolor=lightgrey];\n", margin, i, v.id,
                        quoted(label));
    out_ += fmt::format("{0}w{1}_{2} -> n{1};\n", margin, i, v.id);
  }

  void write_edges() {
    std::vector<int> drawn(graph_.nodes().size());  // per node: itself, or the source of the view
    std::iota(drawn.begin(), drawn.end(), 0);
    for (const Edge& edge : edges_of(graph_)) {
      const int from = drawn[static_cast<size_t>(edge.from)];
      if (!is_drawn(edge.to)) {
        drawn[static_cast<size_t>(edge.to)] = from;
      } else {
        out_ += fmt::format("  n{} -> n{}{};\n", from, edge.to, edge.value ? "" : " [style=dashed, label=\"cache\"]");
      }
    }
  }

  const Graph& graph_;
  DotOptions options_;
  std::string out_;
};

}  // namespace

std::string graph_to_dot(const Graph& graph, std::string_view title, const DotOptions& options) {
  return DotWriter(graph, options).write(title);
}

}  // namespace zinc
