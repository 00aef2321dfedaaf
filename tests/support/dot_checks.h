// Reads the part of the DOT language our writer uses: quoted strings, attribute lists, clusters, edges. It finds
// unbalanced braces and quotes, nodes declared twice and edges between nodes that are not declared.
#pragma once

#include <fmt/format.h>

#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace zinc {

struct DotSummary {
  std::string error;  // empty: none
  std::set<std::string> nodes;
  std::vector<std::pair<std::string, std::string>> edges;
  int n_clusters = 0;
};

// `line` without quoted strings; an open quote is an error.
inline std::string without_strings(const std::string& line, std::string& error) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (in_string && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      out += line[i];
    }
  }
  if (in_string) error = "open quote: " + line;
  return out;
}

inline DotSummary read_dot(const std::string& dot) {
  DotSummary summary;
  int depth = 0;
  std::istringstream lines(dot);
  for (std::string line; std::getline(lines, line);) {
    const std::string bare = without_strings(line, summary.error);
    for (char c : bare) depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    std::istringstream words(bare);
    std::string first, second, third;
    words >> first >> second >> third;
    if (first == "subgraph") ++summary.n_clusters;
    if (first.empty() || (first[0] != 'n' && first[0] != 'w') || first == "node") continue;
    if (second == "->") {
      summary.edges.emplace_back(first, third.substr(0, third.find(';')));
    } else if (!summary.nodes.insert(first).second && first[0] == 'n') {
      summary.error = "declared twice: " + first;
    }
    if (bare.back() != ';') summary.error = "no semicolon: " + line;
  }
  if (depth != 0) summary.error = "braces do not match";
  for (const auto& [from, to] : summary.edges) {
    if (!summary.nodes.contains(from) || !summary.nodes.contains(to)) {
      summary.error = fmt::format("edge between undeclared nodes: {} to {}", from, to);
    }
  }
  return summary;
}

}  // namespace zinc
