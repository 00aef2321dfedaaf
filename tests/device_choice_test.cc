// Answers whose tokens the device chooses, steps ahead of the host, are those the host chooses from the same logits. A
// request for log-probabilities is how a test has the host choose.
#include <gtest/gtest.h>

#include "engine/generator.h"
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
  for (const BackendInfo* backend : usable_backends()) {
    if (!backend->draws_tokens) continue;
    for (const std::string_view model : {"qwen3-q8_0", "gemma3-f16", "qwen35-f16"}) all.push_back({backend, model});
  }
  return all;
}

std::vector<SamplingParams> every_way() {
  return {{.temperature = 0},
          {.temperature = 0.8f, .top_k = 20, .seed = 5},
          {.temperature = 1.3f, .top_p = 0.9f, .min_p = 0.02f, .seed = 6},
          {.temperature = 1, .seed = 7}};
}

std::vector<TokenId> ids_of(const Told& told) {
  std::vector<TokenId> ids;
  for (const AnswerToken& token : told.made) ids.push_back(token.id);
  return ids;
}

class DeviceChoiceTest : public testing::TestWithParam<Subject> {
 protected:
  std::unique_ptr<Engine> engine() const {
    return make_engine({.name = GetParam().model, .backend = GetParam().backend->name},
                       {.max_sequences = 4, .context = 256, .step_tokens = 32});
  }

  // The answers to requests that run together, as the device or the host chooses.
  static std::vector<std::shared_ptr<Told>> answers(Engine& engine, std::vector<Request> requests, bool on_host) {
    std::vector<std::shared_ptr<Told>> told;
    for (Request& request : requests) {
      request.answer.n_top_logprobs = on_host ? 0 : -1;
      told.push_back(submit(engine, std::move(request)));
    }
    run_all(engine);
    return told;
  }

  static std::vector<Request> requests(const Engine& engine) {
    std::vector<Request> all;
    for (const SamplingParams& sampling : every_way()) {
      const uint32_t i = static_cast<uint32_t>(all.size());
      all.push_back({.prompt = draw_tokens(engine.tokenizer(), 20 + 9 * i, i),
                     .answer = {.sampling = sampling, .max_tokens = static_cast<int>(12 + 7 * i), .ignore_eos = true}});
    }
    return all;
  }
};

TEST_P(DeviceChoiceTest, requests_served_together_get_the_hosts_answers) {
  const std::unique_ptr<Engine> device = engine(), host = engine();
  const auto got = answers(*device, requests(*device), false), expected = answers(*host, requests(*host), true);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(ids_of(*got[i]), ids_of(*expected[i])) << "way " << i;
    EXPECT_EQ(got[i]->outcome.reason, expected[i]->outcome.reason);
    EXPECT_EQ(got[i]->n_ends, 1);
  }
}

// The device is a step ahead when the host finds the end; what is kept must not be.
TEST_P(DeviceChoiceTest, an_answer_that_ends_unforeseen_can_be_gone_on_from) {
  const std::unique_ptr<Engine> device = engine(), host = engine();
  Request first = requests(*device)[1];
  const Told whole = *answers(*host, {first}, true)[0];
  ASSERT_FALSE(whole.text.empty());
  first.answer.stop = {whole.text.substr(whole.text.size() / 2, 3)};
  const Told stopped = *answers(*device, {first}, false)[0];
  ASSERT_EQ(stopped.outcome.reason, StopReason::stop_string);
  Request second = first;
  second.answer.stop.clear();
  for (const TokenId id : ids_of(stopped)) second.prompt.push_back(id);
  EXPECT_EQ(ids_of(*answers(*device, {second}, false)[0]), ids_of(*answers(*engine(), {second}, true)[0]));
}

TEST_P(DeviceChoiceTest, one_sequence_alone_gives_the_hosts_answers) {
  const ModelInstance model = load_model({.name = GetParam().model, .backend = GetParam().backend->name});
  const Tokenizer tokenizer = std::move(Tokenizer::load(model.file()).value());
  const std::vector<TokenId> prompt = draw_tokens(tokenizer, 45, 3);
  for (const SamplingParams& sampling : every_way()) {
    std::array<Generation, 2> made;
    for (const int on_host : {0, 1}) {
      Sequence sequence = std::move(Sequence::create(model, {.context = 64, .chunk_tokens = 32}).value());
      const AnswerOptions how{.sampling = sampling, .ignore_eos = true, .n_top_logprobs = on_host - 1};
      made[static_cast<size_t>(on_host)] =
          std::move(generate(sequence, tokenizer, prompt, how, {.text = [](auto) {}, .cancelled = {}}).value());
    }
    EXPECT_EQ(made[0].tokens, made[1].tokens);
    EXPECT_EQ(made[0].tokens.size(), 20u);  // the last one needs no position
    EXPECT_EQ(made[0].reason, StopReason::context_full);
    EXPECT_EQ(made[0].n_decode_steps, made[1].n_decode_steps);
  }
}

INSTANTIATE_TEST_SUITE_P(, DeviceChoiceTest, testing::ValuesIn(subjects()), [](const auto& info) {
  std::string name = fmt::format("{}_{}", info.param.backend->name, info.param.model);
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == ':'; }, '_');
  return name;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceChoiceTest);

}  // namespace
}  // namespace zinc
