// Model, runner and a single request to the engine on one of our own tiny models, on every available backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "base/format_memory.h"
#include "engine/engine_memory.h"
#include "engine/model_fingerprint.h"
#include "engine/model_instance.h"
#include "engine/model_runner.h"

namespace zinc {
namespace {

const std::filesystem::path kModel =
    std::filesystem::path(ZINC_SOURCE_DIR) / "tests/data/oracle/models/qwen3-q8_0.gguf";

ModelInstance load(std::string backend = "reference") {
  Result<ModelInstance> model = ModelInstance::load(kModel, {.backend = std::move(backend)});
  EXPECT_TRUE(model.ok()) << model.error().message;
  return std::move(model.value());
}

std::vector<TokenId> some_tokens(size_t n) {
  std::vector<TokenId> tokens(n);
  for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<TokenId>(i * 37 % 250);
  return tokens;
}

TEST(ModelInstance, rejects_a_model_larger_than_memory_before_its_upload_and_names_both_sizes) {
  const Result<ModelInstance> model = ModelInstance::open(kModel, {.backend = "reference", .memory_limit = 999});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(model.error().message.find(format_memory(std::filesystem::file_size(kModel))), std::string::npos);
  EXPECT_NE(model.error().message.find("999 bytes"), std::string::npos) << model.error().message;
}

TEST(ModelInstance, another_version_has_another_fingerprint) {
  const ModelInstance model = load();
  const Sha256::Digest one = fingerprint_of(model, "zinc 1").value();
  EXPECT_EQ(one, fingerprint_of(model, "zinc 1").value());
  EXPECT_NE(one, fingerprint_of(model, "zinc 2").value());
}

TEST(ModelInstance, an_unknown_backend_is_rejected_with_the_available_ones) {
  const Result<ModelInstance> model = ModelInstance::load(kModel, {.backend = "abacus"});
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("reference"), std::string::npos) << model.error().message;
}

TEST(ModelRunner, rejects_a_context_that_does_not_fit_in_memory) {
  const ModelInstance model =
      std::move(ModelInstance::load(kModel, {.backend = "reference", .memory_limit = 4 << 20}).value());
  EXPECT_TRUE(ModelRunner::create(model, {.context = 100}).ok());
  const Result<ModelRunner> runner = ModelRunner::create(model, {.context = 100000});
  ASSERT_FALSE(runner.ok());
  EXPECT_EQ(runner.error().code, ErrorCode::out_of_memory);
  for (const std::string& part : {std::string("100000 tokens"), format_memory(4 << 20) + " is available"}) {
    EXPECT_NE(runner.error().message.find(part), std::string::npos) << part << " in " << runner.error().message;
  }
}

class EngineMemoryTest : public testing::Test {
 protected:
  static EngineOptions options_of(int max_sequences, int context) {
    return {.max_sequences = max_sequences,
            .context = context,
            .step_tokens = 64,
            .speculation = {.mode = SpeculationMode::off}};
  }

  static ModelInstance open_with(size_t limit) {
    return std::move(ModelInstance::open(kModel, {.backend = "cpu", .n_threads = 1, .memory_limit = limit}).value());
  }
  // What the options need, with a cache of exactly one context.
  static EngineMemory required(const EngineOptions& options) {
    const ModelInstance model = open_with(size_t{1} << 40);
    return std::move(plan_engine_memory(model, size_t{1} << 40, options).value());
  }
};

TEST_F(EngineMemoryTest, is_what_the_engine_takes) {
  const EngineOptions options = options_of(8, 512);
  const EngineMemory memory = required(options);
  const std::unique_ptr<Engine> engine = std::move(Engine::create(open_with(size_t{1} << 40), options).value());
  EXPECT_EQ(engine->limits().weight_bytes, memory.weight_bytes);
  EXPECT_EQ(engine->limits().cache_bytes, memory.cache_bytes);
  EXPECT_EQ(engine->limits().context, memory.cache.context);
}

TEST_F(EngineMemoryTest, what_does_not_fit_is_rejected_before_the_upload_with_what_does) {
  const ModelMemory least = required(options_of(1, 256));
  const size_t limit = least.weight_bytes + least.plan_bytes + 2 * least.cache_bytes;
  const ModelInstance model = open_with(limit);
  const Result<EngineMemory> memory = plan_engine_memory(model, limit, options_of(8, 500000));
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::out_of_memory);
  for (const std::string& part : {std::string("500000 tokens"), format_memory(least.weight_bytes) + " of weights",
                                  format_memory(limit) + " available"}) {
    EXPECT_NE(memory.error().message.find(part), std::string::npos) << part << " in " << memory.error().message;
  }
}

TEST_F(EngineMemoryTest, names_settings_that_fit) {
  const EngineOptions options = options_of(8, 4096);
  const ModelMemory one = required(options_of(1, 4096));  // with f16
  // The KV cache may use half of the memory that the model leaves: enough for the workspaces of one request, not of
  // eight.
  const size_t limit = one.weight_bytes + one.plan_bytes + 2 * one.cache_bytes + 4096;
  const auto message_with = [&](const char* kv_format, size_t n_bytes) {
    const ModelInstance model = std::move(
        ModelInstance::open(
            kModel, {.backend = "cpu", .n_threads = 1, .memory_limit = n_bytes, .kv_format = find_format(kv_format)})
            .value());
    const Result<EngineMemory> memory = plan_engine_memory(model, n_bytes, options);
    return memory.ok() ? "it fits" : memory.error().message;
  };
  EXPECT_TRUE(message_with("f16", limit).ends_with("; it fits with: --parallel 4")) << message_with("f16", limit);
  const std::string f32 = message_with("f32", limit + required(options).plan_bytes);
  EXPECT_NE(f32.find("; it fits with: --kv f16"), std::string::npos) << f32;
}

TEST(ModelRunner, rejects_tokens_beyond_its_context_and_feeds_none_of_them) {
  const ModelInstance model = load();
  ModelRunner runner = std::move(ModelRunner::create(model, {.context = 8}).value());
  const Result<std::span<float>> fed = runner.feed(some_tokens(9));
  ASSERT_FALSE(fed.ok());
  EXPECT_EQ(runner.position(), 0);
  EXPECT_EQ(fed.error().message, "9 tokens do not fit in the context of 8 tokens, 0 of which are used");
}

TEST(ModelRunner, gives_the_same_logits_for_any_chunk_on_every_backend) {
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    if (!(*b)->is_available()) continue;
    SCOPED_TRACE((*b)->name);
    const ModelInstance model = load(std::string((*b)->name));
    std::vector<float> expected;
    for (int chunk : {70, 1, 7, 64}) {
      ModelRunner runner = std::move(ModelRunner::create(model, {.context = 96, .step_tokens = chunk}).value());
      const std::span<const float> logits = runner.feed(some_tokens(70)).value();
      if (expected.empty()) expected.assign(logits.begin(), logits.end());
      EXPECT_TRUE(std::ranges::equal(logits, expected)) << "chunks of " << chunk;
    }
  }
}

TEST(ModelRunner, keeps_only_the_window_of_windowed_layers) {
  const ModelInstance model = std::move(
      ModelInstance::load(kModel.parent_path() / "gemma3-f16.gguf", {.backend = "cpu", .n_threads = 1}).value());
  const auto create = [&](int context, int chunk) {
    return std::move(ModelRunner::create(model, {.context = context, .step_tokens = chunk}).value());
  };
  size_t unbounded_bytes = 0;
  bool has_window = false;
  for (const PageGroup& group : page_groups(model.model().caches)) {
    has_window = has_window || group.window > 0;
    if (group.window == 0) unbounded_bytes += page_bytes(group, model.model().caches, model.kv_format());
  }
  ASSERT_TRUE(has_window);
  EXPECT_EQ(create(640, 16).cache_bytes() - create(320, 16).cache_bytes(), unbounded_bytes * 10);

  ModelRunner whole = create(320, 320), pieces = create(320, 16);
  const std::vector<TokenId> tokens = some_tokens(300);
  EXPECT_TRUE(std::ranges::equal(whole.feed(tokens).value(), pieces.feed(tokens).value()));
}

// An engine with one sequence, as the command line has it.
struct SingleRequest : RequestSink {
  void progress(const PromptProgress&) override {}
  void tokens(std::string_view piece, std::span<const OutputToken> more) override {
    text += piece;
    for (const OutputToken& token : more) ids.push_back(token.id);
  }
  void end(const Outcome& what) override { outcome = what; }

  std::string text;
  std::vector<TokenId> ids;
  Outcome outcome;
};

std::shared_ptr<SingleRequest> generate(ModelInstance model, GenerationOptions options, int context = 64,
                                        size_t cancel_after = SIZE_MAX) {
  const std::unique_ptr<Engine> engine =
      std::move(Engine::create(std::move(model), {.max_sequences = 1, .context = context}).value());
  options.sampling.temperature = 0;
  auto sink = std::make_shared<SingleRequest>();
  const RequestId id = engine->submit({.prompt = some_tokens(10), .options = std::move(options), .sink = sink}).value();
  while (engine->step()) {
    if (sink->ids.size() >= cancel_after) engine->cancel(id);
  }
  return sink;
}

TEST(SingleRequest, gives_the_tokens_with_the_largest_logits_on_every_backend) {
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    if (!(*b)->is_available()) continue;
    SCOPED_TRACE((*b)->name);
    const ModelInstance model = load(std::string((*b)->name));
    std::vector<TokenId> expected;
    ModelRunner runner = std::move(ModelRunner::create(model, {.context = 32}).value());
    std::span<const float> logits = runner.feed(some_tokens(10)).value();
    for (int i = 0; i < 8; ++i) {
      expected.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
      logits = runner.feed({&expected.back(), 1}).value();
    }
    EXPECT_EQ(generate(load(std::string((*b)->name)), {.max_tokens = 8, .ignore_eos = true})->ids, expected);
  }
}

TEST(SingleRequest, stops_at_the_token_limit) {
  const auto a = generate(load(), {.max_tokens = 5});
  EXPECT_EQ(a->outcome.reason, StopReason::max_tokens);
  EXPECT_EQ(a->ids.size(), 5u);
  EXPECT_EQ(a->outcome.usage.n_prompt, 10);
}

TEST(SingleRequest, stops_when_the_context_is_full) {
  const auto a = generate(load(), {}, 20);
  ASSERT_EQ(a->outcome.reason, StopReason::context_full);
  EXPECT_EQ(a->ids.size(), 11u);  // the last token is not fed
}

TEST(SingleRequest, ends_before_a_stop_string) {
  const std::string whole = generate(load(), {.max_tokens = 20})->text;
  ASSERT_GT(whole.size(), 6u);
  const std::string stop = whole.substr(4, 2);
  const auto a = generate(load(), {.max_tokens = 20, .stop = {stop}});
  EXPECT_EQ(a->outcome.reason, StopReason::stop_string);
  EXPECT_EQ(a->text, whole.substr(0, whole.find(stop)));
}

TEST(SingleRequest, is_cancelled_between_tokens) {
  const auto a = generate(load(), {.max_tokens = 50}, 64, 4);
  EXPECT_EQ(a->outcome.reason, StopReason::cancelled);
  EXPECT_EQ(a->ids.size(), 4u);
}

}  // namespace
}  // namespace zinc
