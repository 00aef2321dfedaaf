// Outputs sampled on the device, with pipelined steps, equal those sampled on the host. Requesting log-probabilities
// forces host sampling.
#include <gtest/gtest.h>

#include "tests/support/serving.h"
#include "tests/support/tested_backends.h"

namespace zinc {
namespace {

struct Subject {
  const BackendInfo* backend;
  std::string_view model;
};

void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.model << " on " << subject.backend->name; }

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const BackendInfo* backend : available_backends()) {
    if (!backend->can_sample_on_device) continue;
    for (const std::string_view model : {"qwen3-q8_0", "gemma3-f16", "qwen35-f16"}) all.push_back({backend, model});
  }
  return all;
}

std::vector<SamplingParams> sampling_variants() {
  return {{.temperature = 0},
          {.temperature = 0.8f, .top_k = 20, .seed = 5},
          {.temperature = 1.3f, .top_p = 0.9f, .min_p = 0.02f, .seed = 6},
          {.temperature = 1, .seed = 7}};
}

std::vector<TokenId> ids_of(const RecordingSink& output) {
  std::vector<TokenId> ids;
  for (const OutputToken& token : output.output_tokens) ids.push_back(token.id);
  return ids;
}

class DeviceSamplingEngineTest : public testing::TestWithParam<Subject> {
 protected:
  std::unique_ptr<Engine> engine() const {
    return make_engine({.name = GetParam().model, .backend = GetParam().backend->name},
                       {.max_sequences = 4, .context = 256, .step_tokens = 32});
  }

  // The outputs of concurrent requests, sampled on the device or on the host.
  static std::vector<std::shared_ptr<RecordingSink>> outputs(Engine& engine, std::vector<Request> requests,
                                                             bool on_host) {
    std::vector<std::shared_ptr<RecordingSink>> output;
    for (Request& request : requests) {
      request.options.n_top_logprobs = on_host ? 0 : -1;
      output.push_back(submit(engine, std::move(request)));
    }
    run_all(engine);
    return output;
  }

  static std::vector<Request> requests(const Engine& engine) {
    std::vector<Request> all;
    for (const SamplingParams& sampling : sampling_variants()) {
      const uint32_t i = static_cast<uint32_t>(all.size());
      all.push_back(
          {.prompt = random_tokens(engine.tokenizer(), 20 + 9 * i, i),
           .options = {.sampling = sampling, .max_tokens = static_cast<int>(12 + 7 * i), .ignore_eos = true}});
    }
    return all;
  }
};

TEST_P(DeviceSamplingEngineTest, concurrent_requests_get_the_same_output_as_with_host_sampling) {
  const std::unique_ptr<Engine> device = engine(), host = engine();
  const auto got = outputs(*device, requests(*device), false), expected = outputs(*host, requests(*host), true);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(ids_of(*got[i]), ids_of(*expected[i])) << "sampling parameters " << i;
    EXPECT_EQ(got[i]->outcome.reason, expected[i]->outcome.reason);
    EXPECT_EQ(got[i]->n_ends, 1);
  }
}

// The device is one step ahead when the host detects the stop string; the kept state must not be.
TEST_P(DeviceSamplingEngineTest, an_output_that_ends_at_a_stop_string_can_be_continued) {
  const std::unique_ptr<Engine> device = engine(), host = engine();
  Request first = requests(*device)[1];
  const RecordingSink whole = *outputs(*host, {first}, true)[0];
  ASSERT_FALSE(whole.text.empty());
  first.options.stop = {whole.text.substr(whole.text.size() / 2, 3)};
  const RecordingSink stopped = *outputs(*device, {first}, false)[0];
  ASSERT_EQ(stopped.outcome.reason, StopReason::stop_string);
  Request second = first;
  second.options.stop.clear();
  for (const TokenId id : ids_of(stopped)) second.prompt.push_back(id);
  EXPECT_EQ(ids_of(*outputs(*device, {second}, false)[0]), ids_of(*outputs(*engine(), {second}, true)[0]));
}

TEST_P(DeviceSamplingEngineTest, a_single_sequence_gets_the_same_output_as_with_host_sampling) {
  const ServedFile file{.name = GetParam().model, .backend = GetParam().backend->name};
  const EngineOptions single{
      .max_sequences = 1, .context = 64, .step_tokens = 32, .speculation = {.mode = SpeculationMode::off}};
  const std::unique_ptr<Engine> device = make_engine(file, single), host = make_engine(file, single);
  for (const SamplingParams& sampling : sampling_variants()) {
    const Request request{.prompt = random_tokens(device->tokenizer(), 45, 3),
                          .options = {.sampling = sampling, .ignore_eos = true}};
    const RecordingSink got = *outputs(*device, {request}, false)[0], expected = *outputs(*host, {request}, true)[0];
    EXPECT_EQ(ids_of(got), ids_of(expected));
    EXPECT_EQ(got.output_tokens.size(), 20u);  // the last token needs no position
    EXPECT_EQ(got.outcome.reason, StopReason::context_full);
  }
}

INSTANTIATE_TEST_SUITE_P(, DeviceSamplingEngineTest, testing::ValuesIn(subjects()), [](const auto& info) {
  std::string name = fmt::format("{}_{}", info.param.backend->name, info.param.model);
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == ':'; }, '_');
  return name;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceSamplingEngineTest);

}  // namespace
}  // namespace zinc
