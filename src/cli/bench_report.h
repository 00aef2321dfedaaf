// Results of `zinc bench` as a table, in Markdown or for a terminal, and as JSON.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/bench.h"

namespace zinc {

struct BenchRow {
  BenchTest test;
  Cost cost_per_token = {};
  Samples rates = {};       // tokens per second, one for each round
  Samples peer_rates = {};  // empty: no peer
};

// The tests of one model at one thread count, and the peaks measured between them.
struct BenchRun {
  std::string model, backend, device, arithmetic, kv_format;
  int n_threads = 0;
  Samples read_bytes_per_s = {}, flops_per_s = {};
  size_t file_bytes = 0, cache_bytes = 0, activation_bytes = 0, resident_bytes = 0;  // resident: after the tests
  std::vector<BenchRow> rows = {};
};

std::string bench_markdown(std::span<const BenchRun> runs);
std::string bench_table(std::span<const BenchRun> runs);  // the same with aligned columns, for a terminal
json::array bench_json(std::span<const BenchRun> runs);

}  // namespace zinc
