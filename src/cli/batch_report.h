// Results of `zinc bench --batch` as a table, in Markdown or for a terminal, and as JSON. The columns are those of
// llama-batched-bench.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bench_conditions.h"
#include "engine/batch_bench.h"

namespace zinc {

struct BatchRow {
  BatchTest test;
  std::vector<BatchTimes> rounds = {};
  std::vector<BatchTimes> peer_rounds = {};  // empty: no peer
};

// The tests of one model at one thread count.
struct BatchRun : BenchConditions {
  size_t weight_bytes = 0, cache_bytes = 0;  // on the device
  std::vector<BatchRow> rows = {};
};

std::string batch_markdown(std::span<const BatchRun> runs);
std::string batch_table(std::span<const BatchRun> runs);  // the same with aligned columns, for a terminal
json::array batch_json(std::span<const BatchRun> runs);
std::vector<std::string> batch_warnings(const BatchRun& run);

}  // namespace zinc
