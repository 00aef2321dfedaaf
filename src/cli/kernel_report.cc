#include "cli/kernel_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "graph/cost_table.h"

namespace zinc {
namespace {

constexpr std::string_view kRow = "{:<6} {:<28} {:<30} {:>10} {:>10} {:>11} {:>10} {:>9}  {}\n",
                           kNextLaunch = "{:<6} {:<28} {}\n";

double time_of(const Cost& cost, const RooflinePeaks& peaks) {
  return std::max(cost.bytes() / peaks.bytes_per_s, cost.flops / peaks.flops_per_s);
}

// "norm, linear x3, add", in the order of the graph.
std::string ops_of(const KernelGroup& group) {
  if (group.nodes.empty()) return "prepares the inputs";
  std::vector<const Node*> nodes = group.nodes;
  std::ranges::sort(nodes);
  std::string text;
  for (size_t i = 0; i < nodes.size();) {
    size_t n = 1;
    while (i + n < nodes.size() && nodes[i + n]->op == nodes[i]->op) ++n;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", op_name(nodes[i]->op), n > 1 ? fmt::format(" x{}", n) : "");
    i += n;
  }
  return text;
}

int layer_of(const KernelGroup& group) { return group.nodes.empty() ? -1 : group.nodes.front()->layer; }

json::object cost_fields(const Cost& cost, double time_s) {
  return {{"weight_bytes", cost.weight_bytes},
          {"cache_bytes", cost.cache_read_bytes + cost.cache_written_bytes},
          {"activation_bytes", cost.activation_read_bytes + cost.activation_written_bytes},
          {"flops", cost.flops},
          {"time_s", time_s}};
}

}  // namespace

std::string kernel_table(const StepKernels& step, std::string_view title) {
  std::string text =
      fmt::format("{}\n{}: {}/s, {}/s\n\n", title, step.device, human_amount(step.peaks.bytes_per_s, "B"),
                  human_amount(step.peaks.flops_per_s, "FLOP"));
  const auto out = std::back_inserter(text);
  fmt::format_to(out, kRow, "layer", "kernel", "grid", "weights", "cache", "activations", "FLOPs", "time us", "ops");
  size_t n_launches = 0;
  double total_s = 0;
  Cost total;
  for (const KernelGroup& group : step.groups) {
    const Cost& c = group.cost;
    const double time_s = time_of(c, step.peaks);
    total_s += time_s;
    total += c;
    n_launches += group.launches.size();
    const std::string layer = layer_of(group) < 0 ? "-" : std::to_string(layer_of(group));
    for (const KernelLaunch& launch : group.launches) {
      if (&launch != &group.launches.front()) {
        fmt::format_to(out, kNextLaunch, "", launch.kernel, launch.grid);
        continue;
      }
      fmt::format_to(out, kRow, layer, launch.kernel, launch.grid, human_amount(c.weight_bytes, "B"),
                     human_amount(c.cache_read_bytes + c.cache_written_bytes, "B"),
                     human_amount(c.activation_read_bytes + c.activation_written_bytes, "B"), human_amount(c.flops, ""),
                     fmt::format("{:.2f}", time_s * 1e6), ops_of(group));
    }
  }
  fmt::format_to(out, "\n{} launches, {} and {} FLOPs: {:.1f} us at these rates\n", n_launches,
                 human_amount(total.bytes(), "B"), human_amount(total.flops, ""), total_s * 1e6);
  return text;
}

json::value kernels_to_json(const StepKernels& step, std::string_view title) {
  json::array groups;
  Cost total;
  double total_s = 0;
  for (const KernelGroup& group : step.groups) {
    const double time_s = time_of(group.cost, step.peaks);
    total += group.cost;
    total_s += time_s;
    json::object row = cost_fields(group.cost, time_s);
    json::array launches;
    for (const KernelLaunch& launch : group.launches) {
      launches.push_back(json::object{{"kernel", launch.kernel}, {"grid", launch.grid}});
    }
    row["layer"] = layer_of(group);
    row["ops"] = ops_of(group);
    row["launches"] = std::move(launches);
    groups.push_back(std::move(row));
  }
  return json::object{{"title", title},
                      {"device", json::object{{"name", step.device},
                                              {"bytes_per_s", step.peaks.bytes_per_s},
                                              {"flops_per_s", step.peaks.flops_per_s}}},
                      {"kernels", std::move(groups)},
                      {"total", cost_fields(total, total_s)}};
}

}  // namespace zinc
