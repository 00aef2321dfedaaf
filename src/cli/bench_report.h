// Results of `zinc bench` as a table, in Markdown or for a terminal, and as JSON.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bench_conditions.h"
#include "engine/bench.h"
#include "engine/kernel_bench.h"

namespace zinc {

struct BenchRow {
  BenchTest test;
  Cost cost_per_token = {};
  Samples rates = {};       // tokens per second, one for each round
  Samples peer_rates = {};  // empty: no peer
};

// The tests of one model at one thread count, and the peaks measured between them.
struct BenchRun : BenchConditions {
  std::string arithmetic = {};
  Samples read_bytes_per_s = {}, flops_per_s = {};
  size_t file_bytes = 0, cache_bytes = 0, activation_bytes = 0, resident_bytes = 0;  // resident: after the tests
  std::vector<BenchRow> rows = {};
};

std::string bench_markdown(std::span<const BenchRun> runs);
std::string bench_table(std::span<const BenchRun> runs);  // the same with aligned columns, for a terminal
json::array bench_json(std::span<const BenchRun> runs);
// What makes the figures of a run doubtful: a clock that moved, rounds that spread. One line each.
std::vector<std::string> bench_warnings(const BenchRun& run);

// The table of `zinc bench --kernels`, for a step of n_tokens at this depth.
struct KernelBenchRun {
  std::string model, backend, device;
  int n_tokens = 1, depth = 0;
  double read_bytes_per_s = 0;  // the device's peak, measured in the same run; 0: unknown
  KernelBenchResult result;
};
std::string kernels_markdown(std::span<const KernelBenchRun> runs);
std::string kernels_table(std::span<const KernelBenchRun> runs);  // with aligned columns
json::array kernels_json(std::span<const KernelBenchRun> runs);

}  // namespace zinc
