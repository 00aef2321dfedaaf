// Outputs never depend on the batch: on every available device a hybrid model gives the output of a single sequence,
// bit for bit, however its prompt is cut into chunks, beside other requests, after prefix cache hits and after
// preemption. Prompts have whole chunks of the recurrent scan (BackendInfo::scan_chunk_tokens), which GPUs process
// differently from single tokens; tests/device_serving_test.cc has shorter ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>

#include "tests/support/serving.h"
#include "tests/support/tested_backends.h"

namespace zinc {
namespace {

constexpr int kContext = 256, kStreamedTokens = 128;  // two scan chunks of GPUs

// Every backend, and GPUs for which the weights of experts in host memory are copied.
std::vector<ServedFile> subjects() {
  std::vector<ServedFile> files;
  for (const BackendInfo* backend : available_backends()) {
    if (backend->name == "reference") continue;
    files.push_back({.name = "qwen35-f16", .backend = backend->name});
    if (!backend->devices) continue;
    static std::list<std::string> names;
    files.push_back({.name = "tiny qwen35moe",
                     .backend = names.emplace_back(fmt::format("cpu,{}", backend->name)),
                     .placement = {.cpu_experts = PlacementOptions::kAllLayers, .streamed_tokens = kStreamedTokens}});
  }
  return files;
}

std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class BatchInvarianceTest : public testing::TestWithParam<ServedFile> {
 protected:
  BatchInvarianceTest() : file_(GetParam()), model_(load_model(file_)) {}

  std::vector<TokenId> tokens(size_t n, uint32_t seed) const { return random_tokens(tokenizer_, n, seed); }
  void expect_output_of_single_sequence(const RecordingSink& output, const Request& request) const {
    EXPECT_EQ(output.n_ends, 1);
    EXPECT_TRUE(same_output(output, generate_alone(model_, request, kContext)))
        << request.prompt.size() << " prompt tokens, " << output.outcome.usage.n_cached << " of them cached";
  }
  // Positions that a prompt of n tokens can be resumed from, if `end` of its tokens are common.
  int cached(int end) const { return end - end % model_.scan_chunk_tokens(kContext); }

  ServedFile file_;
  ModelInstance model_;
  Tokenizer tokenizer_ = std::move(Tokenizer::load(model_.file()).value());
};

TEST_P(BatchInvarianceTest, outputs_do_not_depend_on_the_chunks_of_prompts) {
  if (!file_.placement.streamed_tokens) {
    EXPECT_EQ(model_.weights().prompt_chunk_tokens(), 1);
  } else {
    EXPECT_EQ(model_.weights().prompt_chunk_tokens(), kStreamedTokens);
    const double counted = static_cast<double>(model_.layout().weights->device_bytes());
    EXPECT_NEAR(static_cast<double>(model_.weights().device_bytes()), counted, counted / 100);
  }
  std::mt19937 random(1);
  const int least = std::max(64, file_.placement.streamed_tokens.value_or(0));  // a step takes a whole chunk
  for (const int step_tokens : {least, least + 36, 192}) {
    const std::unique_ptr<Engine> engine =
        make_engine(file_, {.max_sequences = 3, .context = kContext, .step_tokens = step_tokens});
    std::vector<Request> requests;
    for (const size_t n_prompt : {63, 64, 65, 130, 191, 200}) {
      requests.push_back({.prompt = tokens(n_prompt, static_cast<uint32_t>(n_prompt)),
                          .options = greedy(2 + static_cast<int>(random() % 4))});
      requests.back().client = fmt::format("client {}", random() % 2);
    }
    std::vector<std::shared_ptr<RecordingSink>> outputs;
    for (const Request& request : requests) {
      outputs.push_back(submit(*engine, request));
      engine->step();
    }
    run_all(*engine);
    for (size_t i = 0; i < requests.size(); ++i) expect_output_of_single_sequence(*outputs[i], requests[i]);
    EXPECT_EQ(pages_in_use(*engine), 0);
  }
}

TEST_P(BatchInvarianceTest, outputs_do_not_depend_on_prefix_cache_hits) {
  const std::unique_ptr<Engine> engine =
      make_engine(file_, {.max_sequences = 2, .context = kContext, .step_tokens = 128, .checkpoint_interval = 50});
  const std::vector<TokenId> system = tokens(70, 1);
  const Request first{.prompt = system + tokens(75, 2), .options = greedy(8), .boundaries = {70}};
  const std::shared_ptr<RecordingSink> answer = submit(*engine, first);
  run_all(*engine);
  expect_output_of_single_sequence(*answer, first);

  Request next = first, fork = first, same = first;
  for (const OutputToken& token : answer->output_tokens) next.prompt.push_back(token.id);
  next.prompt = next.prompt + tokens(40, 3);
  fork.prompt = system + tokens(60, 4);
  const std::vector<Request> requests = {next, fork, same};
  std::vector<std::shared_ptr<RecordingSink>> outputs;
  for (const Request& request : requests) outputs.push_back(submit(*engine, request));
  run_all(*engine);
  for (size_t i = 0; i < requests.size(); ++i) expect_output_of_single_sequence(*outputs[i], requests[i]);
  const int n_fed = static_cast<int>(first.prompt.size() + answer->output_tokens.size()) - 1;
  EXPECT_EQ(outputs[0]->outcome.usage.n_cached, model_.scan_chunk_tokens(kContext) > 1 ? 128 : n_fed);
  EXPECT_EQ(outputs[1]->outcome.usage.n_cached, cached(70));
}

TEST_P(BatchInvarianceTest, outputs_do_not_depend_on_preemption) {
  const int n_streamed = file_.placement.streamed_tokens.value_or(0);
  EngineOptions options{.max_sequences = 1, .context = kContext, .step_tokens = std::max(64, n_streamed)};
  options.cache_bytes = 2 * make_engine(file_, options)->limits().cache_bytes;
  options.max_sequences = 4;
  const Result<std::unique_ptr<Engine>> engine = Engine::create(load_model(file_), options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  std::vector<Request> requests;
  const size_t n_shortest = n_streamed > 0 ? 120 : 60;
  for (uint32_t i = 0; i < 4; ++i) {
    requests.push_back({.prompt = tokens(n_shortest + 10 * i, i), .options = greedy(90)});
  }
  requests[1].options.sampling = {.temperature = 1, .top_p = 0.9f, .seed = 7};
  std::vector<std::shared_ptr<RecordingSink>> outputs;
  for (const Request& request : requests) outputs.push_back(submit(*engine.value(), request));
  run_all(*engine.value());
  EXPECT_GT(engine.value()->stats().n_preempted, 0u);
  for (size_t i = 0; i < requests.size(); ++i) expect_output_of_single_sequence(*outputs[i], requests[i]);
}

// Their rows are all output rows, of which a step has few: how many prompt tokens it takes depends on the batch.
TEST_P(BatchInvarianceTest, scores_of_a_prompt_do_not_depend_on_other_requests) {
  const EngineOptions options{.max_sequences = 96, .context = kContext, .step_tokens = 128};
  Request scored{.prompt = tokens(150, 1), .options = greedy(2)};
  scored.options.n_prompt_logprobs = 1;
  const std::unique_ptr<Engine> alone = make_engine(file_, options), busy = make_engine(file_, options);
  const std::shared_ptr<RecordingSink> expected = submit(*alone, scored);
  run_all(*alone);
  for (uint32_t i = 0; i < 40; ++i) submit(*busy, {.prompt = tokens(3, i), .options = greedy(4)});
  const std::shared_ptr<RecordingSink> output = submit(*busy, scored);
  run_all(*busy);
  EXPECT_TRUE(same_output(*output, *expected));
  ASSERT_EQ(output->outcome.prompt_tokens.size(), scored.prompt.size());
  for (size_t i = 1; i < scored.prompt.size(); ++i) {
    EXPECT_EQ(output->outcome.prompt_tokens[i].logprob, expected->outcome.prompt_tokens[i].logprob) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, BatchInvarianceTest, testing::ValuesIn(subjects()), [](const auto& info) {
  std::string name(info.param.backend);
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == ','; }, '_');
  return name;
});

}  // namespace
}  // namespace zinc
