// The default model, if `zinc run` has downloaded it: chat template, tokenizer, logits and greedy tokens of every
// backend against llama.cpp's on the same file. Never downloads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/json.h"
#include "cli/hub_settings.h"
#include "engine/chat_prompt.h"
#include "engine/model_instance.h"
#include "engine/sequence.h"
#include "hub/catalog.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

// Logits have a standard deviation of 3 to 4. Measured difference: 5e-5 on the reference backend, 0.73 where
// activations are quantized to 8 bits.
double logit_tolerance(const BackendInfo& backend) { return backend.matmul_activation_bits == 8 ? 1.5 : 0.002; }

json::value recorded() {
  std::ifstream file(ZINC_SOURCE_DIR "/tests/data/smollm2_greedy.json");
  return parse_json(std::string(std::istreambuf_iterator<char>(file), {})).value();
}

std::vector<TokenId> tokens_of(const json::value& list) {
  std::vector<TokenId> out;
  for (const json::value& id : list.as_array()) out.push_back(id.to_number<TokenId>());
  return out;
}

TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

std::vector<const BackendInfo*> available_backends() {
  std::vector<const BackendInfo*> usable;
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    if ((*b)->is_available()) usable.push_back(*b);
  }
  return usable;
}

class RealModelTest : public testing::TestWithParam<const BackendInfo*> {
 protected:
  void SetUp() override {
    const CatalogModel& wanted = *find_catalog_model(kDefaultModelId);
    const Result<fs::path> cache = cache_folder();
    const fs::path path = cache.ok() ? cache.value() / "models" / wanted.id / wanted.file.name : fs::path();
    if (!fs::exists(path)) GTEST_SKIP() << "the default model is missing; `zinc run hi` downloads it";
    ASSERT_EQ(figures_.at("sha256").as_string(), wanted.file.sha256) << "the recorded figures are of another file";
    Result<ModelInstance> model = ModelInstance::load(path, {.backend = std::string(GetParam()->name)});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::make_unique<ModelInstance>(std::move(model.value()));
  }

  const json::value figures_ = recorded();
  std::unique_ptr<ModelInstance> model_;
};

TEST_P(RealModelTest, messages_are_rendered_to_the_recorded_prompts) {
  const Tokenizer tokenizer = Tokenizer::load(model_->file()).value();
  const ChatPrompt chat = ChatPrompt::load(model_->file(), tokenizer).value();
  for (const json::value& prompt : figures_.at("prompts").as_array()) {
    ChatTemplateInputs request;
    request.messages = prompt.at("messages").as_array();
    const Result<std::vector<TokenId>> tokens = chat.tokens(std::move(request));
    ASSERT_TRUE(tokens.ok()) << tokens.error().message;
    EXPECT_EQ(tokens.value(), tokens_of(prompt.at("tokens"))) << to_json(prompt.at("messages"));
  }
}

// The recorded output is fed regardless of the sampled token, so a near-tie is skipped and the tokens after it are
// still compared.
TEST_P(RealModelTest, greedy_tokens_match_the_recorded_ones_except_near_ties) {
  const double tolerance = logit_tolerance(*GetParam());
  int n_compared = 0;
  for (const json::value& prompt : figures_.at("prompts").as_array()) {
    SCOPED_TRACE(to_json(prompt.at("messages")));
    Sequence sequence = std::move(Sequence::create(*model_, {.context = 256}).value());
    std::span<const float> logits = sequence.feed(tokens_of(prompt.at("tokens"))).value();
    for (const json::value& top : prompt.at("top").as_array()) {
      EXPECT_NEAR(logits[top.at(0).to_number<size_t>()], top.at(1).to_number<double>(), tolerance);
    }
    const std::vector<TokenId> greedy = tokens_of(prompt.at("greedy"));
    for (size_t i = 0; i < greedy.size(); ++i) {
      if (prompt.at("margin").at(i).to_number<double>() >= 2 * tolerance) {
        EXPECT_EQ(argmax(logits), greedy[i]) << "step " << i;
        ++n_compared;
      }
      logits = sequence.feed({&greedy[i], 1}).value();
    }
  }
  EXPECT_GE(n_compared, 48) << "of 96: too few recorded tokens have a sufficient margin";
}

INSTANTIATE_TEST_SUITE_P(, RealModelTest, testing::ValuesIn(available_backends()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace zinc
