// A sentence hidden in a text that fills the context of a real model is found again, with every KV cache format.
#include <gtest/gtest.h>

#include <array>

#include "tests/support/default_model.h"
#include "tests/support/serving.h"

namespace zinc {
namespace {

constexpr std::string_view kNeedle = "The secret number of the harbour is 48172. ";
constexpr std::string_view kQuestion = "What is the secret number of the harbour? The secret number of the harbour is";

// The needle is in the middle.
std::string text_with_needle(int n_sentences) {
  constexpr std::array<std::string_view, 5> kFiller = {"The grass is green. ", "The sky is blue. ",
                                                       "The sun is yellow. ", "Here we go. ", "There and back again. "};
  std::string text;
  for (int i = 0; i < n_sentences; ++i) {
    if (i == n_sentences / 2) text += kNeedle;
    text += kFiller[static_cast<size_t>(i) % kFiller.size()];
  }
  return text;
}

class LongContextTest : public testing::TestWithParam<std::string_view> {};

TEST_P(LongContextTest, a_needle_in_a_full_context_is_found) {
  ASSERT_TRUE(std::filesystem::exists(default_model_path())) << "`zinc run hi` installs the default model";
  Result<ModelInstance> model =
      ModelInstance::load(default_model_path(), {.backend = "cpu", .kv_format = find_format(GetParam())});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const int context = static_cast<int>(model.value().model().config.max_context);
  const std::unique_ptr<Engine> engine =
      std::move(Engine::create(std::move(model.value()), {.max_sequences = 1, .context = context}).value());
  Request request{.prompt = {}, .options = greedy(8)};
  engine->tokenizer().encode(text_with_needle(1680) + std::string(kQuestion), {}, request.prompt);
  EXPECT_GT(static_cast<int>(request.prompt.size()), context * 98 / 100);
  const std::shared_ptr<RecordingSink> output = submit(*engine, std::move(request));
  run_all(*engine);
  EXPECT_TRUE(output->text.starts_with(" 48172")) << output->text;
}

INSTANTIATE_TEST_SUITE_P(, LongContextTest, testing::Values("f16", "q8_0", "q4_0"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace zinc
