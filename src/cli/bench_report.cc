#include "cli/bench_report.h"

#include "base/version.h"
#include "cli/align_columns.h"

namespace zinc {
namespace {

std::string test_name(const BenchTest& test) {
  return test.scenario.empty() ? test.name() : fmt::format("{} {}", test.scenario, test.name());
}

// Seconds of one request of a scenario, by round: its prefill and its decode.
Samples request_seconds(const BenchRun& run, std::string_view scenario) {
  Samples total;
  for (const BenchRow& row : run.rows) {
    if (row.test.scenario != scenario) continue;
    total.values.resize(row.rates.values.size());
    for (size_t i = 0; i < total.values.size(); ++i) total.values[i] += row.test.n_tokens() / row.rates.values[i];
  }
  return total;
}

// Medians of one row, relative to the peaks and the peer.
struct Figures {
  double bytes_per_s, flops_per_s;
  double bandwidth_share, flop_share;  // of the peaks; 0: peak unknown
  double ratio;                        // to the peer; 0: no peer
};

double share_of(double part, double total) { return total > 0 ? part / total : 0; }

Figures figures_of(const BenchRun& run, const BenchRow& row) {
  const double rate = row.rates.median();
  Figures f{};
  f.bytes_per_s = rate * row.cost_per_token.weight_and_cache_bytes();
  f.flops_per_s = rate * row.cost_per_token.flops;
  f.bandwidth_share = share_of(f.bytes_per_s, run.read_bytes_per_s.median());
  f.flop_share = share_of(f.flops_per_s, run.flops_per_s.median());
  f.ratio = share_of(rate, row.peer_rates.median());
  return f;
}

std::string percent(double share) { return share > 0 ? fmt::format("{:.1f} %", share * 100) : "?"; }

std::string rate_cells(const Samples& rates) {
  return fmt::format(" {:.2f} | {:.1f} % |", rates.median(), rates.spread() * 100);
}

std::string row_line(const BenchRun& run, const BenchRow& row, bool has_peer) {
  const Figures f = figures_of(run, row);
  std::string line = conditions_cells(run) + fmt::format(" {} |", test_name(row.test));
  line += rate_cells(row.rates);
  line += fmt::format(" {:.2f} | {} | {:.1f} | {} |", f.bytes_per_s / 1e9, percent(f.bandwidth_share),
                      f.flops_per_s / 1e9, percent(f.flop_share));
  if (has_peer) line += rate_cells(row.peer_rates) + fmt::format(" {:.2f} |", f.ratio);
  return line + "\n";
}

std::string peaks_line(const BenchRun& run) {
  const double flops_per_s = run.flops_per_s.median();
  std::string line =
      fmt::format("{} ({}): reads {:.1f} GB/s", run.backend, run.device, run.read_bytes_per_s.median() / 1e9);
  if (flops_per_s > 0) line += fmt::format(", {:.0f} GOP/s ({})", flops_per_s / 1e9, run.arithmetic);
  return line + fmt::format("; medians of {} measurements between the runs\n", run.read_bytes_per_s.values.size());
}

std::string memory_line(const BenchRun& run) {
  const auto mb = [](size_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const double needed = mb(run.file_bytes + run.cache_bytes + run.activation_bytes);
  return fmt::format(
      "memory: {:.1f} MB resident, {:.3f} x the sum of file {:.1f}, KV cache {:.1f} and activations {:.1f}\n",
      mb(run.resident_bytes), mb(run.resident_bytes) / needed, mb(run.file_bytes), mb(run.cache_bytes),
      mb(run.activation_bytes));
}

// One line per scenario: the request that a user waits for.
std::string scenario_lines(const BenchRun& run) {
  std::string lines;
  for (size_t i = 0; i + 1 < run.rows.size(); ++i) {
    const BenchTest &prefill = run.rows[i].test, &decode = run.rows[i + 1].test;
    if (prefill.scenario.empty() || prefill.n_prompt == 0) continue;
    const Samples seconds = request_seconds(run, prefill.scenario);
    lines += fmt::format("{}: {} prompt tokens and {} generated in {:.2f} s (median of {})\n", prefill.scenario,
                         prefill.n_prompt, decode.n_gen, seconds.median(), seconds.values.size());
  }
  return lines;
}

json::value share_or_null(double share) { return share > 0 ? json::value(share) : json::value(nullptr); }

json::object row_json(const BenchRun& run, const BenchRow& row) {
  const Figures f = figures_of(run, row);
  json::object entry{{"n_prompt", row.test.n_prompt},
                     {"n_gen", row.test.n_gen},
                     {"depth", row.test.depth},
                     {"tokens_per_second", row.rates.median()},
                     {"spread", row.rates.spread()},
                     {"bandwidth_share", share_or_null(f.bandwidth_share)},
                     {"flop_share", share_or_null(f.flop_share)},
                     {"samples", values_of(row.rates)},
                     {"bytes_per_token", row.cost_per_token.weight_and_cache_bytes()},
                     {"flops_per_token", row.cost_per_token.flops},
                     {"peak_bytes_per_second", share_or_null(run.read_bytes_per_s.median())},
                     {"peak_flops_per_second", share_or_null(run.flops_per_s.median())},
                     {"peak_arithmetic", run.arithmetic},
                     {"file_bytes", run.file_bytes},
                     {"cache_bytes", run.cache_bytes},
                     {"activation_bytes", run.activation_bytes},
                     {"resident_bytes", run.resident_bytes}};
  add_conditions(run, entry);
  if (!row.test.scenario.empty()) {
    entry["scenario"] = row.test.scenario;
    entry["request_seconds"] = request_seconds(run, row.test.scenario).median();
  }
  if (const std::vector<std::string> warnings = bench_warnings(run); !warnings.empty())
    entry["warnings"] = json::array(warnings.begin(), warnings.end());
  if (!row.peer_rates.values.empty()) {
    entry["peer"] = json::object{{"tokens_per_second", row.peer_rates.median()},
                                 {"spread", row.peer_rates.spread()},
                                 {"samples", values_of(row.peer_rates)}};
    entry["ratio"] = f.ratio;
  }
  return entry;
}

std::string step_name(const KernelBenchRun& run) {
  const std::string base = run.n_tokens == 1 ? "decode" : fmt::format("prefill of {}", run.n_tokens);
  return run.depth > 0 ? fmt::format("{} @ d{}", base, run.depth) : base;
}

bool has_peer_rates(std::span<const BenchRun> runs) {
  return !runs.empty() && !runs[0].rows.empty() && !runs[0].rows[0].peer_rates.values.empty();
}

}  // namespace

std::string bench_markdown(std::span<const BenchRun> runs) {
  const bool has_peer = has_peer_rates(runs);
  std::string text = "| model | backend | threads | test | tok/s | spread | GB/s | of peak | GOP/s | of peak |";
  text += has_peer ? " peer tok/s | spread | ratio |\n" : "\n";
  text += "|---|---|--:|---|--:|--:|--:|--:|--:|--:|";
  text += has_peer ? "--:|--:|--:|\n" : "\n";
  for (const BenchRun& run : runs) {
    for (const BenchRow& row : run.rows) text += row_line(run, row, has_peer);
  }
  text += "\n";
  for (const BenchRun& run : runs) {
    text += scenario_lines(run) + peaks_line(run) + memory_line(run) + conditions_line(run);
  }
  return text;
}

std::vector<std::string> bench_warnings(const BenchRun& run) {
  std::vector<std::string> warnings = clock_warnings(run);
  for (const BenchRow& row : run.rows) add_spread_warning(test_name(row.test), row.rates, warnings);
  return warnings;
}

std::string kernels_markdown(std::span<const KernelBenchRun> runs) {
  std::string text = "| kernel | backend | calls | step | us | spread | GB/s | of peak | of step |\n";
  text += "|---|---|--:|---|--:|--:|--:|--:|--:|\n";
  for (const KernelBenchRun& run : runs) {
    for (const KernelFigures& kernel : run.result.kernels) {
      const double seconds = kernel.seconds_per_call.median(), rate = seconds > 0 ? kernel.bytes_per_call / seconds : 0;
      text +=
          fmt::format("| {} | {} | {} | {} | {:.2f} | {:.1f} % | {} | {} | {:.1f} % |\n", kernel.name, run.backend,
                      kernel.n_calls, step_name(run), seconds * 1e6, kernel.seconds_per_call.quartile_spread() * 100,
                      rate > 0 ? fmt::format("{:.1f}", rate / 1e9) : "-",
                      rate > 0 ? percent(share_of(rate, run.read_bytes_per_s)) : "-", kernel.step_share * 100);
    }
  }
  text += "\n";
  for (const KernelBenchRun& run : runs) {
    text += fmt::format("{} ({}), {}: {:.3f} ms per step; reads {:.1f} GB/s\n", run.backend, run.device, step_name(run),
                        run.result.step_seconds.median() * 1e3, run.read_bytes_per_s / 1e9);
  }
  return text;
}

std::string kernels_table(std::span<const KernelBenchRun> runs) { return align_columns(kernels_markdown(runs)); }

json::array kernels_json(std::span<const KernelBenchRun> runs) {
  json::array entries;
  for (const KernelBenchRun& run : runs) {
    for (const KernelFigures& kernel : run.result.kernels) {
      const double seconds = kernel.seconds_per_call.median(), rate = seconds > 0 ? kernel.bytes_per_call / seconds : 0;
      entries.push_back(json::object{{"kernel", kernel.name},
                                     {"model", run.model},
                                     {"backend", run.backend},
                                     {"device", run.device},
                                     {"n_tokens", run.n_tokens},
                                     {"depth", run.depth},
                                     {"calls_per_step", kernel.n_calls},
                                     {"seconds_per_call", seconds},
                                     {"spread", kernel.seconds_per_call.quartile_spread()},
                                     {"bytes_per_call", kernel.bytes_per_call},
                                     {"bandwidth_share", share_or_null(share_of(rate, run.read_bytes_per_s))},
                                     {"step_share", kernel.step_share},
                                     {"step_seconds", run.result.step_seconds.median()},
                                     {"peak_bytes_per_second", share_or_null(run.read_bytes_per_s)},
                                     {"version", program_version()},
                                     {"commit", program_commit()}});
    }
  }
  return entries;
}

std::string bench_table(std::span<const BenchRun> runs) { return align_columns(bench_markdown(runs)); }

json::array bench_json(std::span<const BenchRun> runs) {
  json::array entries;
  for (const BenchRun& run : runs) {
    for (const BenchRow& row : run.rows) entries.push_back(row_json(run, row));
  }
  return entries;
}

}  // namespace zinc
