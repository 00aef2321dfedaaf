#include "cli/bench_conditions.h"

#include <algorithm>
#include <filesystem>

#include "base/processor_info.h"
#include "base/sanitize_for_terminal.h"
#include "base/version.h"

namespace zinc {
namespace {

constexpr size_t kMaxNameBytes = 200;
constexpr double kSteady = 0.03;  // spread of rounds and change of clocks that need no warning

std::string clocks_text(const Samples& clocks) {
  if (clocks.values.empty()) return "unknown clock";
  return fmt::format("clock {:.0f} -> {:.0f} MHz", clocks.values.front(), clocks.values.back());
}

}  // namespace

std::string conditions_cells(const BenchConditions& conditions) {
  const std::string file = std::filesystem::path(conditions.model).filename().string();
  return fmt::format("| {} | {} | {} |", sanitize_for_terminal(file, kMaxNameBytes), conditions.backend,
                     conditions.n_threads);
}

std::string conditions_line(const BenchConditions& conditions) {
  return fmt::format("model {:.12}, {}, {}, {}{}, {}\n", conditions.model_hash, version_text(), program_compiler(),
                     processor_name().empty() ? "unknown processor" : processor_name(),
                     conditions.driver.empty() ? "" : ", " + conditions.driver, clocks_text(conditions.clocks_mhz));
}

void add_conditions(const BenchConditions& conditions, json::object& entry) {
  entry["model"] = conditions.model;
  entry["backend"] = conditions.backend;
  entry["device"] = conditions.device;
  entry["n_threads"] = conditions.n_threads;
  entry["kv_format"] = conditions.kv_format;
  entry["version"] = program_version();
  entry["commit"] = program_commit();
  entry["model_hash"] = conditions.model_hash;
  entry["compiler"] = program_compiler();
  entry["processor"] = processor_name();
  entry["driver"] = conditions.driver;
  entry["clock_mhz"] = values_of(conditions.clocks_mhz);
}

std::vector<std::string> clock_warnings(const BenchConditions& conditions) {
  const std::vector<double>& clocks = conditions.clocks_mhz.values;
  if (conditions.clocks_mhz.spread() <= kSteady) return {};
  return {fmt::format("the clock moved between {:.0f} and {:.0f} MHz: figures of other runs are not comparable",
                      std::ranges::min(clocks), std::ranges::max(clocks))};
}

void add_spread_warning(std::string_view test, const Samples& rates, std::vector<std::string>& warnings) {
  if (rates.spread() <= kSteady) return;
  warnings.push_back(fmt::format("{}: the rounds spread over {:.1f} %: use more rounds (-r) on an idle machine", test,
                                 rates.spread() * 100));
}

json::array values_of(const Samples& samples) { return json::array(samples.values.begin(), samples.values.end()); }

}  // namespace zinc
