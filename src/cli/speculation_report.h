// Results of `zinc bench --acceptance` as a table, in Markdown or for a terminal, and as JSON.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bench_conditions.h"
#include "engine/speculation_bench.h"

namespace zinc {

struct SpeculationRow {
  SpeculationTest test;
  std::vector<SpeculationTimes> rounds = {};
};

// The tests of one model at one thread count.
struct SpeculationRun : BenchConditions {
  std::string drafter;  // "mtp"
  std::vector<SpeculationRow> rows = {};
};

std::string speculation_markdown(std::span<const SpeculationRun> runs);
std::string speculation_table(std::span<const SpeculationRun> runs);  // with aligned columns, for a terminal
json::array speculation_json(std::span<const SpeculationRun> runs);
std::vector<std::string> speculation_warnings(const SpeculationRun& run);

}  // namespace zinc
