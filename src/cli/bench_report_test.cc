#include "cli/bench_report.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace zinc {
namespace {

BenchRun run_with(std::vector<double> clocks_mhz, std::vector<double> prefill_rates, std::vector<double> decode_rates) {
  BenchRun run;
  run.clocks_mhz.values = std::move(clocks_mhz);
  run.rows.resize(2);
  run.rows[0].test.n_prompt = 512;
  run.rows[0].rates.values = std::move(prefill_rates);
  run.rows[1].test.n_gen = 128;
  run.rows[1].rates.values = std::move(decode_rates);
  return run;
}

TEST(BenchWarnings, clock_that_moved_and_rounds_that_spread_are_named) {
  const std::vector<std::string> warnings = bench_warnings(run_with({3000, 2500, 2900}, {1000, 1010}, {95, 105}));
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("the clock moved between 2500 and 3000 MHz"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[1].find("tg128: the rounds spread over 10.0 %"), std::string::npos) << warnings[1];
}

TEST(BenchWarnings, steady_clock_and_rounds_give_none) {
  EXPECT_TRUE(bench_warnings(run_with({3000, 2950}, {1000, 1010}, {100, 101})).empty());
}

TEST(BenchWarnings, unknown_clock_gives_none) { EXPECT_TRUE(bench_warnings(run_with({}, {1000}, {100})).empty()); }

TEST(BenchWarnings, json_carries_them) {
  const std::vector<BenchRun> runs = {run_with({3000, 2500}, {1000, 1010}, {95, 105})};
  const std::string json = to_json(bench_json(runs));
  EXPECT_NE(json.find("the clock moved between 2500 and 3000 MHz"), std::string::npos) << json;
  EXPECT_NE(json.find("tg128: the rounds spread"), std::string::npos) << json;
}

}  // namespace
}  // namespace zinc
