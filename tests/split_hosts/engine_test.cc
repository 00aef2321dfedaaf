// Models split over the processes of mpirun: the engine gives the outputs of one process, bit for bit. Rank 0 runs the
// tests, the other ranks their device: `mpirun -n 2 split_hosts_engine_test`.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "backend/mpi/remote_rank.h"
#include "backend/mpi/worker.h"
#include "base/job_signals.h"
#include "engine/speculation.h"
#include "tests/support/serving.h"

namespace zinc {
namespace {

const EngineOptions kOptions = {.max_sequences = 3, .context = 256, .step_tokens = 24, .checkpoint_interval = 32};

class SplitHostsTest : public testing::TestWithParam<const char*> {
 protected:
  static ModelInstance load(mpi::World* world) {
    return std::move(
        ModelInstance::load(model_path(GetParam()),
                            {.backend = "cpu", .n_threads = 1, .kv_format = find_format("f16"), .world = world})
            .value());
  }
  static std::unique_ptr<Engine> engine(mpi::World* world, const EngineOptions& options) {
    ModelInstance model = load(world);
    EXPECT_EQ(model.devices().size() > 1, world != nullptr);
    return std::move(Engine::create(std::move(model), options).value());
  }
  // Several requests at once; the second half share prefixes with the first.
  static std::vector<RecordingSink> outputs(Engine& engine, int n_tokens) {
    std::vector<RecordingSink> outputs;
    for (int round = 0; round < 2; ++round) {
      std::vector<std::shared_ptr<RecordingSink>> sinks;
      for (uint32_t i = 0; i < 5; ++i) {
        Request request;
        request.prompt = random_tokens(engine.tokenizer(), 40 + 11 * i, i);
        const std::vector<TokenId> more = random_tokens(engine.tokenizer(), 7, 100 + i);
        if (round > 0) request.prompt.insert(request.prompt.end(), more.begin(), more.end());
        request.options = greedy(n_tokens);
        sinks.push_back(submit(engine, std::move(request)));
      }
      run_all(engine);
      for (const auto& sink : sinks) outputs.push_back(*sink);
    }
    return outputs;
  }
  static void expect_same(const std::vector<RecordingSink>& got, const std::vector<RecordingSink>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].n_ends, 1);
      EXPECT_FALSE(got[i].text.empty());
      EXPECT_TRUE(same_output(got[i], expected[i])) << i << ": " << got[i].text << " / " << expected[i].text;
    }
  }
};

TEST_P(SplitHostsTest, outputs_are_those_of_one_process) {
  EngineOptions options = kOptions;
  options.speculation.mode = SpeculationMode::off;
  const std::unique_ptr<Engine> whole = engine(nullptr, options);
  const std::unique_ptr<Engine> split = engine(mpi::World::joined(), options);
  expect_same(outputs(*split, 30), outputs(*whole, 30));
  EXPECT_EQ(split->stats().n_cached_tokens, whole->stats().n_cached_tokens);
}

TEST_P(SplitHostsTest, drafts_and_preemption_leave_the_outputs_as_they_are) {
  EngineOptions options = kOptions;
  options.speculation.mode = SpeculationMode::off;
  const std::unique_ptr<Engine> whole = engine(nullptr, options);
  const std::vector<RecordingSink> expected = outputs(*whole, 60);
  options.speculation = {.mode = SpeculationMode::ngram, .ignores_cost = true};
  std::unique_ptr<Engine> split = engine(mpi::World::joined(), options);
  const size_t n_bytes = split->limits().cache_bytes;
  split = nullptr;
  for (size_t percent = 30; !split; percent += 5) {  // what windows, states and one context need, and hardly more
    options.cache_bytes = n_bytes * percent / 100;
    Result<std::unique_ptr<Engine>> small = Engine::create(load(mpi::World::joined()), options);
    if (small.ok()) split = std::move(small.value());
  }
  expect_same(outputs(*split, 60), expected);
  EXPECT_GT(split->stats().speculation.n_drafted_tokens, 0u);
  EXPECT_GT(split->stats().n_preempted, 0u);
}

TEST_P(SplitHostsTest, a_saved_prefix_cache_is_loaded_on_all_ranks) {
  EngineOptions options = kOptions;
  options.cache_file = std::filesystem::path(testing::TempDir()) / fmt::format("split_hosts_{}.cache", ::getpid());
  std::vector<RecordingSink> first, second;
  {
    const std::unique_ptr<Engine> split = engine(mpi::World::joined(), options);
    first = outputs(*split, 10);
    ASSERT_TRUE(split->save_cache().ok());
  }
  const std::unique_ptr<Engine> split = engine(mpi::World::joined(), options);
  EXPECT_EQ(split->limits().cache_load_error, "");
  Request request;
  request.prompt = random_tokens(split->tokenizer(), 84, 4);
  request.options = greedy(10);
  const auto sink = submit(*split, std::move(request));
  run_all(*split);
  EXPECT_TRUE(same_output(*sink, first[4]));
  EXPECT_GT(sink->outcome.usage.n_cached, 0);
  std::filesystem::remove(options.cache_file);
}

INSTANTIATE_TEST_SUITE_P(Models, SplitHostsTest, testing::Values("tiny smollm3", "tiny qwen35", "tiny gemma3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace_if(
                               name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace zinc

int main(int argc, char** argv) {
  using namespace zinc;
  testing::InitGoogleTest(&argc, argv);
  const Result<mpi::World*> joined = mpi::World::join();
  if (!joined.ok()) {
    fmt::print(stderr, "{}\n", joined.error().message);
    return 1;
  }
  mpi::World& world = *joined.value();
  int code = 0;
  if (world.rank() > 0) {
    ignore_termination_signals();
    world.set_on_lost([](const Error&) { exit_at_once(1); });
    code = mpi::run_worker(world).ok() ? 0 : 1;
  } else {
    code = RUN_ALL_TESTS();
    for (const auto& worker : mpi::remote_ranks(world)) worker->send(mpi::Call::leave, 0);
  }
  world.leave();
  return code;
}
