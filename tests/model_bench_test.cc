// ModelBench on models of every kind of cache: a run computes exactly the tokens of its test, and those before it come
// from the prefix cache.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/bench.h"
#include "tests/support/serving.h"

namespace zinc {
namespace {

class ModelBenchTest : public testing::TestWithParam<const char*> {
 protected:
  static ModelBench bench(std::span<const BenchTest> tests, std::function<bool()> cancelled = {}) {
    return std::move(ModelBench::prepare(load_model({.name = GetParam()}), tests, {}, std::move(cancelled)).value());
  }
};

TEST_P(ModelBenchTest, a_run_computes_the_tokens_of_its_test_and_takes_those_before_from_the_cache) {
  const std::vector<BenchTest> tests = {{.n_prompt = 33},
                                        {.n_gen = 5},
                                        {.n_prompt = 33, .depth = 70},
                                        {.n_gen = 5, .depth = 70},
                                        {.n_gen = 3, .depth = 40}};
  ModelBench measured = bench(tests);
  for (const BenchTest& test : tests) ASSERT_TRUE(measured.warm_up(test).ok());
  for (int round = 0; round < 3; ++round) {
    for (const BenchTest& test : tests) {
      SCOPED_TRACE(test.name());
      const EngineStats before = measured.engine().stats();
      const Result<double> rate = measured.tokens_per_s(test);
      ASSERT_TRUE(rate.ok()) << rate.error().message;
      EXPECT_GT(rate.value(), 0);
      const EngineStats after = measured.engine().stats();
      // A prefix that was evicted is computed again, and the run is repeated.
      if (after.n_prompt_tokens - before.n_prompt_tokens > static_cast<uint64_t>(test.depth + test.n_prompt + 1))
        continue;
      EXPECT_EQ(after.n_prefilled_tokens - before.n_prefilled_tokens,
                static_cast<uint64_t>(std::max(test.n_prompt, 1)));
      EXPECT_EQ(after.n_cached_tokens - before.n_cached_tokens, static_cast<uint64_t>(test.depth));
      EXPECT_EQ(after.n_generated_tokens - before.n_generated_tokens, static_cast<uint64_t>(std::max(test.n_gen, 1)));
    }
  }
  EXPECT_EQ(pages_in_use(measured.engine()), 0);
}

TEST_P(ModelBenchTest, an_interrupt_ends_the_run) {
  const std::vector<BenchTest> tests = {{.n_gen = 30}};
  int n_polls = 0;
  ModelBench measured = bench(tests, [&] { return ++n_polls > 5; });
  const Result<double> rate = measured.tokens_per_s(tests[0]);
  ASSERT_FALSE(rate.ok());
  EXPECT_EQ(rate.error().code, ErrorCode::cancelled);
}

INSTANTIATE_TEST_SUITE_P(, ModelBenchTest, testing::Values("qwen3-q8_0", "gemma3-f16", "qwen35moe-q8_0"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace zinc
