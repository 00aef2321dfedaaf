#include "cli/batch_report.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

BatchRun run_with(std::vector<BatchTimes> rounds, std::vector<BatchTimes> peer_rounds = {}) {
  BatchRun run;
  run.rows.push_back({.test = {.n_prompt = 100, .n_gen = 10, .n_sequences = 4},
                      .rounds = std::move(rounds),
                      .peer_rounds = std::move(peer_rounds)});
  return run;
}

TEST(BatchReport, a_row_has_the_columns_of_llama_batched_bench) {
  const std::vector<BatchRun> runs = {run_with({{.prefill_s = 0.5, .decode_s = 0.3}})};
  EXPECT_NE(
      batch_markdown(runs).find("| 100 | 10 | 4 | 440 | 0.500 | 800.00 | 0.300 | 133.33 | 0.800 | 550.00 | 0.0 % |\n"),
      std::string::npos)
      << batch_markdown(runs);
}

TEST(BatchReport, ratios_are_of_speeds) {
  const std::vector<BatchRun> runs = {
      run_with({{.prefill_s = 0.5, .decode_s = 0.3}}, {{.prefill_s = 1, .decode_s = 0.6}})};
  EXPECT_NE(batch_markdown(runs).find(" 400.00 | 2.00 | 66.67 | 2.00 | 275.00 | 2.00 |\n"), std::string::npos)
      << batch_markdown(runs);
}

TEST(BatchReport, rounds_that_spread_are_named_by_phase) {
  const std::vector<std::string> warnings =
      batch_warnings(run_with({{.prefill_s = 1, .decode_s = 1}, {.prefill_s = 1, .decode_s = 1.5}}));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("pp100 tg10 b4, decode: the rounds spread"), std::string::npos) << warnings[0];
}

}  // namespace
}  // namespace zinc
