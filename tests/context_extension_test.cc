// Requests that need more than the trained context, in an engine with a larger one: they get the RoPE scaling that they
// need, and no other request changes by a bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/contains_all.h"
#include "tests/support/serving.h"

namespace zinc {
namespace {

constexpr int kTrained = kTinyContext, kExtended = 4 * kTinyContext;
constexpr const char* kModels[] = {"qwen3", "llama", "smollm3", "qwen35"};

TinyModel without_extension(std::string_view name) {
  TinyModel model = tiny_model(name);
  std::erase_if(model.metadata, [](const TinyKey& key) { return key.name.starts_with("rope.scaling"); });
  return model;
}

TinyModel with_static_yarn(std::string_view name, int factor) {
  TinyModel model = without_extension(name);
  model.name += fmt::format(" x{}", factor);
  model.metadata.push_back({"rope.scaling.type", std::string("yarn")});
  model.metadata.push_back({"rope.scaling.factor", static_cast<float>(factor)});
  model.metadata.push_back({"rope.scaling.original_context_length", uint32_t{kTrained}});
  return model;
}

ModelInstance load(const TinyModel& model, Draft draft = Draft::skip) {
  const LoadOptions options{.backend = "cpu", .n_threads = 1, .draft = draft};
  return std::move(ModelInstance::load(write_tiny_model(model), options).value());
}

std::unique_ptr<Engine> serve(const TinyModel& model, int context,
                              SpeculationOptions speculation = {.mode = SpeculationMode::off}) {
  const Draft draft = speculation.mode == SpeculationMode::mtp ? Draft::load : Draft::skip;
  const EngineOptions options{.max_sequences = 8,
                              .context = context,
                              .step_tokens = 96,
                              .queue_limit = 100,
                              .speculation = std::move(speculation),
                              .checkpoint_interval = 64};
  return std::move(Engine::create(load(model, draft), options).value());
}

Request request(const Engine& engine, size_t n_prompt, int max_tokens, uint32_t seed) {
  return {.prompt = random_tokens(engine.tokenizer(), n_prompt, seed), .options = greedy(max_tokens)};
}

std::shared_ptr<RecordingSink> run(Engine& engine, Request request) {
  std::shared_ptr<RecordingSink> output = submit(engine, std::move(request));
  run_all(engine);
  return output;
}

TEST(ContextExtension, short_requests_have_the_same_bits_beside_long_ones) {
  for (const char* name : kModels) {
    const std::unique_ptr<Engine> trained = serve(without_extension(name), kTrained);
    const std::unique_ptr<Engine> extended = serve(without_extension(name), kExtended);
    std::vector<std::shared_ptr<RecordingSink>> expected, outputs;
    std::vector<std::shared_ptr<RecordingSink>> beside;
    beside.push_back(submit(*extended, request(*extended, 600, 20, 90)));
    beside.push_back(submit(*extended, request(*extended, 100, 300, 91)));
    for (uint32_t i = 0; i < 5; ++i) {
      expected.push_back(run(*trained, request(*trained, 30 + 40 * i, 12, i)));
      outputs.push_back(submit(*extended, request(*extended, 30 + 40 * i, 12, i)));
    }
    run_all(*extended);
    for (size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(same_output(*outputs[i], *expected[i])) << name << i;
    for (const auto& sink : beside) EXPECT_EQ(sink->outcome.reason, StopReason::max_tokens) << name;
  }
}

TEST(ContextExtension, a_prompt_of_1500_tokens_has_the_same_logits_with_and_without_an_extended_context) {
  for (const char* name : {"qwen3", "qwen35"}) {
    TinyModel model = without_extension(name);
    std::ranges::find(model.metadata, "context_length", &TinyKey::name)->value = uint32_t{2048};
    model.name += " 2048";
    const std::unique_ptr<Engine> trained = serve(model, 2048), extended = serve(model, 8192);
    EXPECT_EQ(extended->limits().rope_contexts.size(), 4u);
    Request prompt = request(*trained, 1500, 2, 1);
    prompt.options.n_top_logprobs = static_cast<int>(kTinyVocabulary);
    const auto expected = run(*trained, prompt), output = run(*extended, prompt);
    ASSERT_EQ(expected->output_tokens.at(0).top.size(), static_cast<size_t>(kTinyVocabulary));
    EXPECT_TRUE(same_output(*output, *expected)) << name;
    prompt.options.max_tokens = 600;  // does not fit in the trained context
    EXPECT_NE(run(*extended, prompt)->output_tokens.at(0).logprob, expected->output_tokens.at(0).logprob) << name;
  }
}

TEST(ContextExtension, a_long_request_has_the_bits_of_a_file_with_its_factor) {
  for (const char* name : kModels) {
    const std::unique_ptr<Engine> extended = serve(without_extension(name), kExtended);
    const auto brief = submit(*extended, request(*extended, 60, 40, 1));
    const auto by_prompt = submit(*extended, request(*extended, 600, 20, 2));
    const auto by_limit = submit(*extended, request(*extended, 60, 300, 1));
    run_all(*extended);
    const std::unique_ptr<Engine> x3 = serve(with_static_yarn(name, 3), kExtended);
    const std::unique_ptr<Engine> x2 = serve(with_static_yarn(name, 2), kExtended);
    EXPECT_TRUE(same_output(*by_prompt, *run(*x3, request(*x3, 600, 20, 2)))) << name;
    EXPECT_TRUE(same_output(*by_limit, *run(*x2, request(*x2, 60, 300, 1)))) << name;
    EXPECT_FALSE(same_output(*brief, *run(*x2, request(*x2, 60, 40, 1)))) << name;
  }
}

TEST(ContextExtension, the_prefix_cache_never_mixes_scalings) {
  for (const char* name : kModels) {
    const std::unique_ptr<Engine> engine = serve(without_extension(name), kExtended);
    const Request brief = request(*engine, 200, 20, 7);
    Request lengthy = brief;
    lengthy.options.max_tokens = 100;
    const auto first = run(*engine, brief);
    const auto scaled = run(*engine, lengthy);  // 300 positions: factor 2
    EXPECT_EQ(first->outcome.usage.n_cached, 0) << name;
    EXPECT_EQ(scaled->outcome.usage.n_cached, 0) << name;
    EXPECT_EQ(scaled->outcome.usage.n_common, 0) << name;
    for (const auto& [again, cold] : {std::pair{brief, first}, std::pair{lengthy, scaled}}) {
      const auto hit = run(*engine, again);
      EXPECT_GT(hit->outcome.usage.n_cached, 100) << name;
      EXPECT_TRUE(same_output(*hit, *cold)) << name;
    }
  }
}

TEST(ContextExtension, an_output_without_a_limit_ends_with_the_context_of_its_factor) {
  const std::unique_ptr<Engine> engine = serve(without_extension("qwen3"), kExtended);
  const auto length_of = [&](int n_prompt) {
    const auto output = run(*engine, request(*engine, static_cast<size_t>(n_prompt), 0, 3));
    EXPECT_EQ(output->outcome.reason, StopReason::context_full);
    return n_prompt + output->outcome.usage.n_completion - 1;  // the last token is not fed
  };
  EXPECT_EQ(length_of(20), kTrained);
  EXPECT_EQ(length_of(kTrained * 3 / 4), kTrained);
  EXPECT_EQ(length_of(kTrained * 3 / 4 + 1), 2 * kTrained);  // with room for an output of a quarter
  EXPECT_EQ(length_of(2 * kTrained), 3 * kTrained);
  EXPECT_EQ(length_of(kExtended - 5), kExtended);
}

TEST(ContextExtension, a_requests_own_limit_decides_its_factor) {
  const std::unique_ptr<Engine> engine = serve(without_extension("qwen3"), kExtended);
  EXPECT_EQ(engine->limits().rope_contexts, (std::vector<int>{kTrained, 2 * kTrained, 3 * kTrained, kExtended}));
  // The last output token needs no position.
  const auto fits = run(*engine, request(*engine, 200, kTrained - 200 + 1, 5));
  const auto longer = run(*engine, request(*engine, 200, kTrained - 200 + 2, 5));
  EXPECT_EQ(fits->outcome.reason, StopReason::max_tokens);
  EXPECT_EQ(longer->outcome.reason, StopReason::max_tokens);
  EXPECT_EQ(longer->outcome.usage.n_common, 0);
}

TEST(ContextExtension, more_than_the_largest_factor_is_refused_at_load) {
  const auto error_of = [](const TinyModel& model, int context) {
    const Result<std::unique_ptr<Engine>> engine =
        Engine::create(load(model), {.max_sequences = 1, .context = context});
    return engine.ok() ? "" : engine.error().message;
  };
  EXPECT_TRUE(contains_all(error_of(without_extension("qwen3"), kExtended + 1), {"1025", "256", "YaRN", "-c 1024"}));
  EXPECT_EQ(error_of(without_extension("qwen3"), kExtended), "");
  // The file's own factor is for every request: a longer context is the user's choice.
  EXPECT_EQ(error_of(with_static_yarn("qwen3", 2), kExtended + 1), "");
}

TEST(ContextExtension, longrope_has_two_contexts_without_any_option) {
  const std::unique_ptr<Engine> engine = serve(tiny_model("llama with longrope"), 0);
  EXPECT_EQ(engine->limits().rope_contexts, (std::vector<int>{kTrained / 4, kTrained}));
  const auto brief = run(*engine, request(*engine, 40, 20, 4));
  const auto lengthy = run(*engine, request(*engine, 40, 100, 4));
  EXPECT_EQ(lengthy->outcome.usage.n_common, 0);
  EXPECT_NE(brief->output_tokens[0].logprob, lengthy->output_tokens[0].logprob);
  EXPECT_EQ(run(*engine, request(*engine, 40, 25, 4))->outcome.usage.n_cached, 39);
}

TEST(ContextExtension, drafts_of_an_mtp_block_do_not_change_long_requests) {
  const auto outputs_of = [](SpeculationOptions speculation) {
    const std::unique_ptr<Engine> engine = serve(without_extension("qwen35"), kExtended, std::move(speculation));
    std::vector<std::shared_ptr<RecordingSink>> outputs;
    for (uint32_t i = 0; i < 3; ++i) outputs.push_back(submit(*engine, request(*engine, 50 + 200 * i, 40, i)));
    run_all(*engine);
    return outputs;
  };
  const auto plain = outputs_of({.mode = SpeculationMode::off});
  const auto drafted = outputs_of({.mode = SpeculationMode::mtp, .ignores_cost = true});
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(same_output(*drafted[i], *plain[i])) << i;
    EXPECT_GT(drafted[i]->outcome.usage.n_draft_accepted + drafted[i]->outcome.usage.n_draft_rejected, 0) << i;
  }
}

TEST(ContextExtension, a_draft_model_extends_its_own_context) {
  const TinyModel target = without_extension("qwen3");
  TinyModel draft = target;
  draft.name = "draft of half the context";
  std::ranges::find(draft.metadata, "context_length", &TinyKey::name)->value = uint32_t{kTrained / 2};
  const std::unique_ptr<Engine> plain = serve(target, kExtended);
  const std::unique_ptr<Engine> engine =
      serve(target, kExtended,
            {.mode = SpeculationMode::draft, .draft_model = write_tiny_model(draft), .ignores_cost = true});
  for (const int n_prompt : {50, 200, 600}) {
    const auto expected = run(*plain, request(*plain, static_cast<size_t>(n_prompt), 30, 8));
    const auto drafted = run(*engine, request(*engine, static_cast<size_t>(n_prompt), 30, 8));
    EXPECT_TRUE(same_output(*drafted, *expected)) << n_prompt;
    EXPECT_GT(drafted->outcome.usage.n_draft_accepted + drafted->outcome.usage.n_draft_rejected, 0) << n_prompt;
  }
}

}  // namespace
}  // namespace zinc
