#include "cli/align_columns.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace zinc {
namespace {

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  for (size_t at = 1; at < line.size();) {
    const size_t end = std::min(line.find('|', at), line.size());
    const std::string_view cell = line.substr(at, end - at);
    const size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    cells.emplace_back(first == std::string_view::npos ? "" : cell.substr(first, last + 1 - first));
    at = end + 1;
  }
  return cells;
}

}  // namespace

std::string align_columns(std::string_view markdown) {
  std::vector<std::vector<std::string>> rows;  // a line that is not of the table has one cell
  std::vector<size_t> widths;
  std::vector<std::string> alignments;
  for (size_t at = 0; at < markdown.size();) {
    const size_t end = std::min(markdown.find('\n', at), markdown.size());
    const std::string_view line = markdown.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("|--")) {
      alignments = cells_of(line);
      continue;
    }
    rows.push_back(line.starts_with('|') ? cells_of(line) : std::vector{std::string(line)});
    if (rows.back().size() < 2) continue;
    widths.resize(std::max(widths.size(), rows.back().size()));
    for (size_t i = 0; i < rows.back().size(); ++i) widths[i] = std::max(widths[i], rows.back()[i].size());
  }
  alignments.resize(widths.size());
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    if (row.size() < 2) text += row[0];
    for (size_t i = 0; row.size() >= 2 && i < row.size(); ++i) {
      text += i == 0 ? "" : "  ";
      text += alignments[i].ends_with(':') ? fmt::format("{:>{}}", row[i], widths[i])
                                           : fmt::format("{:<{}}", row[i], widths[i]);
    }
    text += "\n";
  }
  return text;
}

}  // namespace zinc
