// The engine as its clients see it, on small models of every kind of cache: outputs do not depend on the batch, nothing
// is computed twice, nothing leaks, every request ends once.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/support/serving.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

struct Kind {
  std::string model, what, kv_format = "f16";
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.model << " (" << kind.what << ")"; }
const std::vector<Kind> kKinds = {{"qwen3-q8_0", "dense"},
                                  {"gemma3-f16", "sliding"},
                                  {"qwen35moe-q8_0", "hybrid"},
                                  {"gpt-oss-mxfp4", "alternating"},
                                  {"tiny llama", "dense_in_8_bits", "q8_0"},
                                  {"tiny gemma4 with layer embeddings", "shared_layers"}};

class ServingTest : public testing::TestWithParam<Kind> {
 protected:
  ServedFile file() const { return {.name = GetParam().model, .kv_format = GetParam().kv_format}; }
  ModelInstance load() const { return load_model(file()); }
  std::unique_ptr<Engine> serve(const EngineOptions& options) const { return make_engine(file(), options); }
  void expect_cold_outputs_of_conversations(const SpeculationOptions& speculation) const;
};

std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
std::vector<TokenId> ids_of(const RecordingSink& output) {
  std::vector<TokenId> ids;
  for (const OutputToken& token : output.output_tokens) ids.push_back(token.id);
  return ids;
}

TEST_P(ServingTest, sixty_four_concurrent_requests_get_the_same_output_as_alone) {
  const std::unique_ptr<Engine> engine = serve({.max_sequences = 24, .context = 256, .step_tokens = 64});
  const ModelInstance model = load();
  std::vector<Request> requests(64);
  std::vector<std::shared_ptr<RecordingSink>> output;
  std::mt19937 random(1);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = random_tokens(engine->tokenizer(), 3 + random() % 120, static_cast<uint32_t>(i));
    requests[i].options = greedy(1 + static_cast<int>(random() % 24));
    if (i % 3 == 0) {  // sampled, with its own seed
      requests[i].options.sampling = {.temperature = 1, .top_p = 0.9f, .seed = i};
    }
    requests[i].client = fmt::format("client {}", i % 5);
    output.push_back(submit(*engine, requests[i]));
  }
  run_all(*engine);
  int n_equal = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(output[i]->n_ends, 1);
    n_equal += same_output(*output[i], generate_alone(model, requests[i], 256)) ? 1 : 0;
  }
  EXPECT_EQ(n_equal, 64);
  EXPECT_EQ(pages_in_use(*engine), 0);
  RecordProperty("equal_to_solo", n_equal);
}

TEST_P(ServingTest, a_second_turn_prefills_only_new_tokens) {
  const std::unique_ptr<Engine> engine = serve({.max_sequences = 4, .context = 1024, .step_tokens = 256});
  const ModelInstance model = load();
  const std::vector<TokenId> system = random_tokens(engine->tokenizer(), 900, 1);
  Request first{
      .prompt = system + random_tokens(engine->tokenizer(), 40, 2), .options = greedy(20), .boundaries = {900}};
  const std::shared_ptr<RecordingSink> answer = submit(*engine, first);
  run_all(*engine);
  EXPECT_EQ(answer->outcome.usage.n_cached, 0);

  Request second = first;
  second.prompt = first.prompt + ids_of(*answer) + random_tokens(engine->tokenizer(), 30, 3);
  const std::shared_ptr<RecordingSink> next = submit(*engine, second);
  Request other = first;  // another conversation with the same system prompt
  other.prompt = system + random_tokens(engine->tokenizer(), 50, 4);
  const std::shared_ptr<RecordingSink> aside = submit(*engine, other);
  run_all(*engine);
  // The last output token is never fed.
  EXPECT_EQ(next->outcome.usage.n_cached, 900 + 40 + 19);
  EXPECT_EQ(next->outcome.usage.miss, CacheMiss::diverged);
  EXPECT_EQ(aside->outcome.usage.n_cached, 900);
  EXPECT_EQ(engine->stats().n_prefilled_tokens, 940u + 31 + 50);
  EXPECT_TRUE(same_output(*next, generate_alone(model, second, 1024)));
  EXPECT_TRUE(same_output(*aside, generate_alone(model, other, 1024)));
  fmt::print("{}: turn 2 of {} tokens prefilled {}; a new conversation of {} prefilled {}\n", GetParam().what,
             second.prompt.size(), next->outcome.usage.n_prompt - next->outcome.usage.n_cached, other.prompt.size(),
             aside->outcome.usage.n_prompt - aside->outcome.usage.n_cached);
}

TEST_P(ServingTest, an_edited_turn_resumes_from_the_end_of_the_turn_before) {
  const std::unique_ptr<Engine> engine = serve({.max_sequences = 2, .context = 1024, .step_tokens = 128});
  const ModelInstance model = load();
  const std::vector<TokenId> before = random_tokens(engine->tokenizer(), 700, 1);
  Request request{
      .prompt = before + random_tokens(engine->tokenizer(), 60, 2), .options = greedy(8), .boundaries = {300, 700}};
  submit(*engine, request);
  run_all(*engine);
  request.prompt = before + random_tokens(engine->tokenizer(), 55, 3);
  const std::shared_ptr<RecordingSink> edited = submit(*engine, request);
  run_all(*engine);
  EXPECT_EQ(edited->outcome.usage.n_cached, 700);
  EXPECT_TRUE(same_output(*edited, generate_alone(model, request, 1024)));
}

TEST_P(ServingTest, a_repeated_prompt_prefills_at_most_a_few_tokens) {
  const std::unique_ptr<Engine> engine = serve({.max_sequences = 2, .context = 512, .step_tokens = 128});
  const Request request{.prompt = random_tokens(engine->tokenizer(), 400, 1), .options = greedy(8)};
  const std::shared_ptr<RecordingSink> once = submit(*engine, request);
  run_all(*engine);
  const std::shared_ptr<RecordingSink> twice = submit(*engine, request);
  run_all(*engine);
  EXPECT_GE(twice->outcome.usage.n_cached, 396);
  EXPECT_TRUE(same_output(*once, *twice));
}

TEST_P(ServingTest, concurrent_requests_prefill_their_common_prefix_once) {
  const std::unique_ptr<Engine> engine = serve({.max_sequences = 8, .context = 1024, .step_tokens = 128});
  const ModelInstance model = load();
  const std::vector<TokenId> system = random_tokens(engine->tokenizer(), 600, 1);
  std::vector<Request> requests(8);
  std::vector<std::shared_ptr<RecordingSink>> output;
  for (uint32_t i = 0; i < 8; ++i) {
    requests[i] = {
        .prompt = system + random_tokens(engine->tokenizer(), 20, 10 + i), .options = greedy(5), .boundaries = {600}};
    output.push_back(submit(*engine, requests[i]));
  }
  run_all(*engine);
  EXPECT_LE(engine->stats().n_prefilled_tokens, 600u + 8 * 20);
  for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(same_output(*output[i], generate_alone(model, requests[i], 1024))) << i;
}

// Two of three tokens of the output that a request predicts are right.
std::vector<TokenId> corrupted(std::vector<TokenId> output, std::mt19937& random) {
  for (TokenId& id : output) {
    if (random() % 3 == 0) id = static_cast<TokenId>(random() % 32);
  }
  return output;
}

// Conversations that grow, fork, are edited, run concurrently and are cancelled, in a cache too small for all of them;
// each output is compared with a cold start.
void ServingTest::expect_cold_outputs_of_conversations(const SpeculationOptions& speculation) const {
  const ModelInstance model = load();
  const size_t small_cache = [&] {  // about six contexts
    const std::unique_ptr<Engine> engine =
        serve({.max_sequences = 5, .context = 256, .step_tokens = 48, .speculation = speculation});
    return engine->limits().cache_bytes;
  }();
  const std::unique_ptr<Engine> engine = serve({.max_sequences = 5,
                                                .context = 256,
                                                .step_tokens = 48,
                                                .cache_bytes = small_cache / 2,
                                                .speculation = speculation,
                                                .checkpoint_interval = 64});
  std::mt19937 random(20261115);
  std::vector<std::vector<TokenId>> conversations = {{}};
  int n_compared = 0, n_cached = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<Request> requests(1 + random() % 7);
    std::vector<RecordingSink> cold;
    std::vector<std::shared_ptr<RecordingSink>> output;
    std::vector<RequestId> ids;
    for (Request& request : requests) {
      std::vector<TokenId> text = conversations[random() % conversations.size()];
      if (random() % 3 == 0) text.resize(random() % (text.size() + 1));  // an edit, or a turn back
      if (text.size() > 180) text.resize(20);
      request.boundaries = {static_cast<int>(text.size())};
      request.prompt = text + random_tokens(engine->tokenizer(), 1 + random() % 60, static_cast<uint32_t>(random()));
      request.options = greedy(1 + static_cast<int>(random() % 16));
      cold.push_back(generate_alone(model, request, 256));
      if (speculation.mode != SpeculationMode::off) request.prediction = corrupted(ids_of(cold.back()), random);
      auto sink = std::make_shared<RecordingSink>();
      request.sink = sink;
      output.push_back(sink);
      ids.push_back(engine->submit(request).value());
      if (random() % 2 == 0) engine->step();
    }
    std::vector<bool> cut(requests.size());
    if (random() % 2 == 0) {
      const size_t which = random() % requests.size();
      cut[which] = true;
      engine->cancel(ids[which]);
    }
    run_all(*engine);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(output[i]->n_ends, 1);
      ASSERT_EQ(output[i]->n_after_end, 0);
      if (cut[i] && output[i]->outcome.reason == StopReason::cancelled) continue;
      ASSERT_TRUE(same_output(*output[i], cold[i])) << "round " << round << ", " << i;
      ++n_compared;
      n_cached += output[i]->outcome.usage.n_cached;
      conversations.push_back(requests[i].prompt + ids_of(*output[i]));
    }
    ASSERT_EQ(pages_in_use(*engine), 0) << "round " << round;
  }
  const EngineStats stats = engine->stats();
  EXPECT_GT(n_cached, 0);
  EXPECT_GT(stats.n_evicted_pages, 0u) << "the cache is too large to test eviction";
  fmt::print(
      "{}: {} outputs equal cold starts; {} of {} prompt tokens cached, {} pages evicted, {} of {} drafted tokens "
      "accepted\n",
      GetParam().what, n_compared, stats.n_cached_tokens, stats.n_prompt_tokens, stats.n_evicted_pages,
      stats.speculation.n_accepted_tokens, stats.speculation.n_drafted_tokens);
  if (speculation.mode != SpeculationMode::off) {
    EXPECT_GT(stats.speculation.n_accepted_tokens, 100u);
    EXPECT_GT(stats.speculation.n_drafted_tokens, stats.speculation.n_accepted_tokens + 100);
  }
}

TEST_P(ServingTest, outputs_with_a_prefix_cache_equal_those_of_a_cold_start) {
  expect_cold_outputs_of_conversations({.mode = SpeculationMode::off});
}

TEST_P(ServingTest, outputs_with_drafts_and_a_prefix_cache_equal_those_of_a_cold_start) {
  expect_cold_outputs_of_conversations({.mode = SpeculationMode::automatic, .ignores_cost = true});
}

TEST_P(ServingTest, a_restarted_engine_loads_the_saved_prefix_cache) {
  const TestFolder folder;
  EngineOptions options{.max_sequences = 2, .context = 512, .step_tokens = 128, .cache_file = folder / "cache"};
  const ModelInstance model = load();
  Request request{.options = greedy(10), .boundaries = {300}};
  std::vector<TokenId> answered;
  {
    const std::unique_ptr<Engine> engine = serve(options);
    request.prompt = random_tokens(engine->tokenizer(), 350, 1);
    const std::shared_ptr<RecordingSink> output = submit(*engine, request);
    run_all(*engine);
    answered = ids_of(*output);
    ASSERT_TRUE(engine->save_cache().ok());
  }
  const std::unique_ptr<Engine> engine = serve(options);
  EXPECT_EQ(engine->limits().cache_load_error, "");
  request.prompt = request.prompt + answered + random_tokens(engine->tokenizer(), 20, 2);
  const std::shared_ptr<RecordingSink> output = submit(*engine, request);
  run_all(*engine);
  EXPECT_EQ(output->outcome.usage.n_cached, 359);
  EXPECT_TRUE(same_output(*output, generate_alone(model, request, 512)));

  const std::string other = GetParam().model == "qwen2-f16" ? "qwen3-q8_0" : "qwen2-f16";
  EXPECT_NE(make_engine({.name = other}, options)->limits().cache_load_error, "")
      << "another model's cache is not loaded";
}

INSTANTIATE_TEST_SUITE_P(Kinds, ServingTest, testing::ValuesIn(kKinds),
                         [](const testing::TestParamInfo<Kind>& info) { return info.param.what; });

}  // namespace
}  // namespace zinc
