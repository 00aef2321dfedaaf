// What the figures of a benchmark depend on, and what makes them doubtful. Every report of `zinc bench` has it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/bench.h"

namespace zinc {

struct BenchConditions {
  std::string model, backend, device, kv_format;
  int n_threads = 0;
  std::string model_hash = {};  // of the file, in hexadecimal digits
  std::string driver = {};      // of a GPU
  Samples clocks_mhz = {};      // of the device: before the first round and after each one; empty: unknown
};

std::string conditions_cells(const BenchConditions& conditions);  // "| model | backend | threads |"
std::string conditions_line(const BenchConditions& conditions);
void add_conditions(const BenchConditions& conditions, json::object& entry);

// One line each, at a change of clocks or a spread of rounds above 3 %.
std::vector<std::string> clock_warnings(const BenchConditions& conditions);
void add_spread_warning(std::string_view test, const Samples& rates, std::vector<std::string>& warnings);

json::array values_of(const Samples& samples);

}  // namespace zinc
