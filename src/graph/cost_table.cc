#include "graph/cost_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

namespace zinc {
namespace {

constexpr std::string_view kHeader = "{:<14} {:>6} {:>11} {:>11} {:>11} {:>12} {:>9} {:>9} {:>6}\n";

using Out = std::back_insert_iterator<std::string>;

void write_header(Out out, std::string_view first) {
  fmt::format_to(out, kHeader, first, "nodes", "weights", "cache", "activations", "FLOPs", "FLOP/byte", "time us",
                 "share");
}

void write_row(Out out, std::string_view name, const CostSum& sum, double total_s) {
  const Cost& c = sum.cost;
  fmt::format_to(out, kHeader, name, sum.n_nodes, human_amount(c.weight_bytes, "B"),
                 human_amount(c.cache_read_bytes + c.cache_written_bytes, "B"),
                 human_amount(c.activation_read_bytes + c.activation_written_bytes, "B"), human_amount(c.flops, ""),
                 fmt::format("{:.2f}", c.intensity()), fmt::format("{:.1f}", sum.time_s * 1e6),
                 fmt::format("{:.1f}%", total_s > 0 ? 100 * sum.time_s / total_s : 0));
}

void write_ops(Out out, const Graph& graph, const GraphCost& cost) {
  const std::array<CostSum, kOpCount> sums = sum_by_op(graph, cost);
  std::array<size_t, kOpCount> order;
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t op) { return sums[op].time_s; });
  write_header(out, "op");
  for (size_t op : order) {
    if (sums[op].n_nodes > 0) write_row(out, op_name(static_cast<Op>(op)), sums[op], cost.time_s);
  }
}

void write_layers(Out out, const Graph& graph, const GraphCost& cost) {
  const std::vector<CostSum> sums = sum_by_layer(graph, cost);
  write_header(out, "layer");
  for (size_t entry = 1; entry < sums.size(); ++entry) {
    if (sums[entry].n_nodes > 0) write_row(out, std::to_string(entry - 1), sums[entry], cost.time_s);
  }
  write_row(out, "outside", sums[0], cost.time_s);
  write_row(out, "total", {static_cast<int>(graph.nodes().size()), cost.total, cost.time_s}, cost.time_s);
}

void write_cache(Out out, const Graph& graph, const GraphCost& cost) {
  const Format& kv_format = *cost.step.kv_format;
  fmt::format_to(out, "{:<28} {} bytes ({})\n", "KV cache per token", kv_bytes_per_token(graph.caches(), kv_format),
                 kv_format.name);
  const std::vector<PageGroup> groups = page_groups(graph.caches());
  for (const PageGroup& group : groups) {
    if (groups.size() == 1 && group.window == 0) break;
    const std::string reach = group.window > 0 ? fmt::format("window {}", group.window) : "all positions";
    fmt::format_to(out, "{:<28} {} bytes, {} layers\n", "  " + reach,
                   page_bytes(group, graph.caches(), kv_format) / kPageTokens, group.layers.size());
  }
  fmt::format_to(out, "{:<28} {} bytes\n", "recurrent state per sequence", state_bytes(graph.caches()));
}

void write_summary(Out out, const Graph& graph, const GraphCost& cost) {
  const double n_tokens = static_cast<double>(cost.step.n_tokens);
  fmt::format_to(out, "{:<28} {} bytes\n", "weights in the graph", resident_weight_bytes(graph));
  fmt::format_to(
      out, "{:<28} {:.0f} bytes ({} weights, {} cache, {} activations)\n", "bytes moved per token",
      cost.total.bytes() / n_tokens, human_amount(cost.total.weight_bytes / n_tokens, "B"),
      human_amount((cost.total.cache_read_bytes + cost.total.cache_written_bytes) / n_tokens, "B"),
      human_amount((cost.total.activation_read_bytes + cost.total.activation_written_bytes) / n_tokens, "B"));
  fmt::format_to(out, "{:<28} {:.0f}\n", "FLOPs per token", cost.total.flops / n_tokens);
  write_cache(out, graph, cost);
  fmt::format_to(out, "{:<28} {} of {} nodes, {:.1f} us\n", "critical path", cost.critical_path.size(),
                 graph.nodes().size(), cost.critical_time_s * 1e6);
  fmt::format_to(out, "{:<28} {:.1f} (nodes one by one, unfused: {:.1f})\n", "tokens/s, upper bound",
                 cost.tokens_per_s_bound(), cost.tokens_per_s());
}

}  // namespace

std::string human_amount(double amount, std::string_view unit) {
  static constexpr std::array<std::string_view, 6> kPrefixes = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (amount >= 1000 && prefix + 1 < kPrefixes.size()) {
    amount /= 1000;
    ++prefix;
  }
  std::string text = prefix == 0 ? fmt::format("{:.0f}", amount) : fmt::format("{:.2f}", amount);
  const std::string suffix = std::string(kPrefixes[prefix]) + std::string(unit);
  return suffix.empty() ? text : text + " " + suffix;
}

std::string cost_table(const Graph& graph, const GraphCost& cost) {
  std::string text;
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "step: tokens {}, sequences {}, depth {}; device: {:.1f} GB/s, {:.1f} GFLOP/s\n\n",
                 cost.step.n_tokens, cost.step.n_seqs, cost.step.depth, cost.peaks.bytes_per_s / 1e9,
                 cost.peaks.flops_per_s / 1e9);
  write_ops(out, graph, cost);
  text += '\n';
  write_layers(out, graph, cost);
  text += '\n';
  write_summary(out, graph, cost);
  return text;
}

}  // namespace zinc
