// BatchBench on models of every kind of cache: the engine computes exactly the tokens of the test, all sequences
// together, and every run starts from an empty cache.
#include "engine/batch_bench.h"

#include <gtest/gtest.h>

#include "tests/support/serving.h"

namespace zinc {
namespace {

class BatchBenchTest : public testing::TestWithParam<const char*> {
 protected:
  static BatchBench bench(const std::vector<BatchTest>& tests, std::function<bool()> cancelled = {}) {
    return std::move(BatchBench::prepare(load_model({.name = GetParam()}), tests, {}, std::move(cancelled)).value());
  }
};

// Tokens that the engine has computed, and the number of its steps.
struct Counts {
  uint64_t n_prefilled, n_generated, n_cached, n_steps;
};
Counts counts_of(const BatchBench& bench) {
  const EngineStats stats = bench.engine().stats();
  return {stats.n_prefilled_tokens, stats.n_generated_tokens, stats.n_cached_tokens, stats.n_steps};
}

TEST_P(BatchBenchTest, each_sequence_prefills_its_prompt_and_decodes_its_tokens_with_the_others) {
  const BatchTest small{.n_prompt = 40, .n_gen = 6, .n_sequences = 3};
  const BatchTest large{.n_prompt = 70, .n_gen = 10, .n_sequences = 5};
  BatchBench measured = bench({small, large});
  for (const BatchTest& test : {large, small, large}) {
    const Counts before = counts_of(measured);
    const Result<BatchTimes> times = measured.measure(test);
    ASSERT_TRUE(times.ok()) << times.error().message;
    EXPECT_GT(times.value().prefill_s, 0);
    EXPECT_GT(times.value().decode_s, 0);
    const Counts after = counts_of(measured);
    const uint64_t n = static_cast<uint64_t>(test.n_sequences);
    // Every prompt token is prefilled once; the second submission takes all but the last few from the prefix cache.
    const uint64_t n_prompts = 2 * static_cast<uint64_t>(test.n_prompt_total());
    EXPECT_EQ(after.n_prefilled - before.n_prefilled + after.n_cached - before.n_cached, n_prompts) << test.name();
    EXPECT_LE(after.n_prefilled - before.n_prefilled, n_prompts / 2 + 4 * n) << test.name();
    // The first token twice, then n_gen tokens; the step in flight when the measurement ends may add one.
    const uint64_t n_generated = after.n_generated - before.n_generated;
    EXPECT_GE(n_generated, n * (2 + static_cast<uint64_t>(test.n_gen))) << test.name();
    EXPECT_LE(n_generated, n * (4 + static_cast<uint64_t>(test.n_gen))) << test.name();
    // All sequences decode in the same steps.
    EXPECT_LE(after.n_steps - before.n_steps, 8 + static_cast<uint64_t>(test.n_gen)) << test.name();
    EXPECT_EQ(pages_in_use(measured.engine()), 0);
  }
}

TEST_P(BatchBenchTest, prompts_of_one_run_are_not_found_by_the_next) {
  const BatchTest test{.n_prompt = 33, .n_gen = 4, .n_sequences = 2};
  BatchBench measured = bench({test});
  ASSERT_TRUE(measured.warm_up(test).ok());
  for (const PageUse& use : measured.engine().stats().pages) EXPECT_EQ(use.n_cached, 0);
}

TEST_P(BatchBenchTest, an_interrupt_ends_the_run) {
  const BatchTest test{.n_prompt = 40, .n_gen = 30, .n_sequences = 2};
  int n_polls = 0;
  BatchBench measured = bench({test}, [&] { return ++n_polls > 5; });
  const Result<BatchTimes> times = measured.measure(test);
  ASSERT_FALSE(times.ok());
  EXPECT_EQ(times.error().code, ErrorCode::cancelled);
}

// Prompts this short leave no space for a checkpoint of every sequence.
TEST(BatchBench, sequences_that_prefill_again_because_their_checkpoint_was_evicted_decode_with_the_others) {
  const BatchTest test{.n_prompt = 40, .n_gen = 6, .n_sequences = 16};
  BatchBench measured = std::move(BatchBench::prepare(load_model({.name = "qwen35-f16"}), {{test}}).value());
  const Result<BatchTimes> times = measured.measure(test);
  ASSERT_TRUE(times.ok()) << times.error().message;
  EXPECT_GT(counts_of(measured).n_prefilled, static_cast<uint64_t>(test.n_prompt_total() + 4 * test.n_sequences));
}

TEST(BatchBench, a_batch_that_does_not_fit_memory_is_rejected) {
  for (const BatchTest& test : {BatchTest{.n_prompt = 512, .n_gen = 64, .n_sequences = 64},
                                BatchTest{.n_prompt = 1 << 20, .n_gen = 1 << 20, .n_sequences = 4096}}) {
    ModelInstance model = std::move(ModelInstance::load(ZINC_SOURCE_DIR "/tests/data/oracle/models/qwen3-q8_0.gguf",
                                                        {.backend = "cpu", .n_threads = 1, .memory_limit = 8 << 20})
                                        .value());
    const Result<BatchBench> rejected = BatchBench::prepare(std::move(model), {{test}});
    ASSERT_FALSE(rejected.ok()) << test.name();
    EXPECT_EQ(rejected.error().code, ErrorCode::out_of_memory);
    EXPECT_NE(rejected.error().message.find("use a smaller --batch, -p or -n"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(, BatchBenchTest, testing::Values("qwen3-q8_0", "gemma3-f16", "qwen35moe-q8_0"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace zinc
