// SpeculationBench: drafts have the acceptance that was asked for, plain and drafted runs compute the same tokens.
#include "engine/speculation_bench.h"

#include <gtest/gtest.h>

#include "tests/support/serving.h"

namespace zinc {
namespace {

Result<SpeculationBench> bench(const ServedFile& file, const SpeculationTest& test, SpeculationOptions options,
                               std::function<bool()> cancelled = {}) {
  options.ignores_cost = true;
  return SpeculationBench::prepare(load_model(file), {{test}}, std::move(options), std::move(cancelled));
}

TEST(SpeculationBench, drafted_tokens_are_accepted_with_the_chosen_probability) {
  for (const double acceptance : {0.0, 0.5, 1.0}) {
    const SpeculationTest test{.n_prompt = 20, .n_gen = 200, .n_sequences = 3, .acceptance = acceptance};
    Result<SpeculationBench> measured = bench({.name = "qwen35-f16"}, test, {});
    ASSERT_TRUE(measured.ok()) << measured.error().message;
    const Result<SpeculationTimes> times = measured.value().measure(test);
    ASSERT_TRUE(times.ok()) << times.error().message;
    EXPECT_GT(times.value().plain_s, 0);
    EXPECT_GT(times.value().drafted_s, 0);
    const double n_drafted = static_cast<double>(times.value().n_drafted);
    const double n_accepted = static_cast<double>(times.value().n_accepted);
    EXPECT_GT(n_drafted, 200);
    // Of seven drafted tokens a + a^2 + .. + a^7 are accepted.
    const double expected = acceptance == 0.5 ? 0.992 / 7 : acceptance;
    EXPECT_NEAR(n_accepted / n_drafted, expected, 0.04) << "acceptance " << acceptance;
    EXPECT_EQ(pages_in_use(measured.value().engine()), 0);
  }
}

TEST(SpeculationBench, the_models_own_drafter_runs_too) {
  const SpeculationTest test{.n_prompt = 20, .n_gen = 30, .n_sequences = 2, .acceptance = 0.8};
  Result<SpeculationBench> measured =
      bench({.name = "qwen35moe-q8_0", .draft = Draft::load}, test, {.mode = SpeculationMode::mtp});
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  ASSERT_TRUE(measured.value().measure(test).ok());
  EXPECT_EQ(measured.value().engine().limits().speculation, SpeculationMode::mtp);
}

TEST(SpeculationBench, an_interrupt_ends_the_run) {
  const SpeculationTest test{.n_prompt = 20, .n_gen = 50, .n_sequences = 1, .acceptance = 1};
  int n_polls = 0;
  Result<SpeculationBench> measured = bench({.name = "qwen3-q8_0"}, test, {}, [&] { return ++n_polls > 5; });
  const Result<SpeculationTimes> times = measured.value().measure(test);
  ASSERT_FALSE(times.ok());
  EXPECT_EQ(times.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace zinc
