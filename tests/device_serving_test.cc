// The engine on every available device: batches, forks of a conversation and cancellations give the outputs of a cold
// start, bit for bit. The requests are small, because some devices are emulated; tests/serving_test.cc has larger ones
// for the CPU backend, tests/batch_invariance_test.cc prompts with whole chunks of the recurrent scan.
#include <gtest/gtest.h>

#include "tests/support/serving.h"
#include "tests/support/tested_backends.h"

namespace zinc {
namespace {

constexpr int kContext = 64;

struct Subject {
  const BackendInfo* backend;
  std::string_view model;
  SplitMode split_mode = SplitMode::automatic;
};
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.model << " on " << subject.backend->name; }

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const BackendInfo* backend : available_backends()) {
    if (backend->name == "reference") continue;
    for (const std::string_view model : {"qwen3-q8_0", "gemma3-f16", "qwen35-f16"}) all.push_back({backend, model});
  }
  for (const std::string_view model : {"gemma3-f16", "qwen35-f16"}) all.push_back({split_devices(), model});
  all.push_back({split_devices(), "qwen35-f16", SplitMode::tensor});
  return all;
}

std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
std::vector<TokenId> ids_of(const RecordingSink& output) {
  std::vector<TokenId> ids;
  for (const OutputToken& token : output.output_tokens) ids.push_back(token.id);
  return ids;
}

class DeviceServingTest : public testing::TestWithParam<Subject> {
 protected:
  ServedFile file() const {
    return {.name = GetParam().model,
            .backend = GetParam().backend->name,
            .placement = {.split_mode = GetParam().split_mode}};
  }
  std::vector<TokenId> tokens(size_t n, uint32_t seed) const { return random_tokens(engine_->tokenizer(), n, seed); }
  bool equals_cold_start(const RecordingSink& output, const Request& request) const {
    return same_output(output, generate_alone(engine_->model(), request, kContext));
  }
  struct Submitted {
    RequestId id;
    std::shared_ptr<RecordingSink> output;
  };
  Submitted submit_request(Request request) const {
    const auto output = std::make_shared<RecordingSink>();
    request.sink = output;
    return {engine_->submit(std::move(request)).value(), output};
  }

  // Prompts take several steps, and a third request waits until one ends.
  const std::unique_ptr<Engine> engine_ =
      make_engine(file(), {.max_sequences = 2, .context = kContext, .step_tokens = 24});
};

TEST_P(DeviceServingTest, concurrent_requests_get_the_same_output_as_alone) {
  std::vector<Request> requests = {{.prompt = tokens(40, 1), .options = greedy(4)},
                                   {.prompt = tokens(5, 2), .options = greedy(8)},
                                   {.prompt = tokens(33, 3), .options = greedy(3)}};
  requests[1].options.sampling = {.temperature = 1, .top_p = 0.9f, .seed = 7};
  requests.push_back(requests[1]);  // a second output of the same request
  requests[3].options.stream = 1;
  std::vector<std::shared_ptr<RecordingSink>> outputs;
  for (const Request& request : requests) outputs.push_back(submit(*engine_, request));
  run_all(*engine_);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(outputs[i]->n_ends, 1);
    EXPECT_TRUE(equals_cold_start(*outputs[i], requests[i])) << "request " << i;
  }
  EXPECT_EQ(pages_in_use(*engine_), 0);
}

TEST_P(DeviceServingTest, forks_of_a_conversation_get_the_same_output_as_a_cold_start) {
  const std::vector<TokenId> system = tokens(30, 1);
  const Request first{.prompt = system + tokens(5, 2), .options = greedy(3), .boundaries = {30}};
  const std::shared_ptr<RecordingSink> answer = submit(*engine_, first);
  run_all(*engine_);
  Request next = first, fork = first;
  next.prompt = first.prompt + ids_of(*answer) + tokens(4, 3);
  fork.prompt = system + tokens(6, 4);
  const std::shared_ptr<RecordingSink> continued = submit(*engine_, next), forked = submit(*engine_, fork);
  run_all(*engine_);
  EXPECT_EQ(continued->outcome.usage.n_cached, 30 + 5 + 2);  // the last output token is never fed
  EXPECT_EQ(forked->outcome.usage.n_cached, 30);
  EXPECT_TRUE(equals_cold_start(*continued, next));
  EXPECT_TRUE(equals_cold_start(*forked, fork));
}

// Without log-probabilities the device samples, if it can: steps are pipelined, and one is in flight when a request is
// cancelled.
TEST_P(DeviceServingTest, a_request_cancelled_in_flight_leaves_the_others_and_the_prefix_cache_correct) {
  Request kept{.prompt = tokens(20, 1), .options = greedy(8)}, cut{.prompt = tokens(30, 2), .options = greedy(20)};
  kept.options.n_top_logprobs = cut.options.n_top_logprobs = -1;
  const Submitted other = submit_request(kept), cancelled = submit_request(cut);
  while (cancelled.output->output_tokens.size() < 3) ASSERT_TRUE(engine_->step());
  engine_->cancel(cancelled.id);
  run_all(*engine_);
  EXPECT_EQ(cancelled.output->outcome.reason, StopReason::cancelled);
  EXPECT_EQ(cancelled.output->n_ends, 1);
  EXPECT_EQ(cancelled.output->n_after_end, 0);
  EXPECT_EQ(pages_in_use(*engine_), 0);
  EXPECT_TRUE(equals_cold_start(*other.output, kept));

  Request resumed = cut;
  resumed.prompt = cut.prompt + ids_of(*cancelled.output) + tokens(2, 3);
  resumed.options.max_tokens = 3;
  const std::shared_ptr<RecordingSink> output = submit(*engine_, resumed);
  run_all(*engine_);
  EXPECT_GE(output->outcome.usage.n_cached,
            static_cast<int>(cut.prompt.size() + cancelled.output->output_tokens.size()) - 1);
  EXPECT_TRUE(equals_cold_start(*output, resumed));
}

INSTANTIATE_TEST_SUITE_P(, DeviceServingTest, testing::ValuesIn(subjects()), [](const auto& info) {
  std::string name = fmt::format("{}_{}{}", info.param.backend->name, info.param.model,
                                 info.param.split_mode == SplitMode::tensor ? "_tensor" : "");
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == ':' || c == ','; }, '_');
  return name;
});

}  // namespace
}  // namespace zinc
