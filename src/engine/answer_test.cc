#include "engine/answer.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace zinc {
namespace {

// Tokens are chosen by raising their logit.
class AnswerTest : public testing::Test {
 protected:
  AnswerTest()
      : file_(std::move(
            GgufFile::open(std::filesystem::path(ZINC_SOURCE_DIR) / "tests/data/oracle/models/qwen3-q8_0.gguf")
                .value())),
        tokenizer_(std::move(Tokenizer::load(file_).value())) {}

  std::vector<TokenId> encode(std::string_view text) const {
    std::vector<TokenId> ids;
    tokenizer_.encode(text, {.parse_special = true}, ids);
    return ids;
  }
  Answer::Step push(Answer& answer, TokenId wanted) {
    std::vector<float> logits(static_cast<size_t>(tokenizer_.n_vocab()), 0.0f);
    logits[static_cast<size_t>(wanted)] = 10;
    return answer.push(logits, sampler_, true).value();
  }
  // Says the text, as far as it is let; what came out.
  std::string say(Answer& answer, std::string_view text) {
    std::string out;
    for (const TokenId id : encode(text)) out += push(answer, id).text;
    return out;
  }
  static AnswerOptions greedy() {
    AnswerOptions options;
    options.sampling.temperature = 0;
    return options;
  }

  GgufFile file_;
  Tokenizer tokenizer_;
  Sampler sampler_;
  const std::vector<TokenId> prompt_ = {1, 2, 3};
};

TEST_F(AnswerTest, ends_at_an_end_token_unless_told_to_ignore_it) {
  const TokenId end = tokenizer_.end_tokens().front();
  Answer answer(tokenizer_, greedy(), prompt_);
  const Answer::Step step = push(answer, end);
  EXPECT_EQ(step.reason, StopReason::end_token);
  EXPECT_FALSE(step.in_answer);
  EXPECT_EQ(answer.n_tokens(), 0);

  AnswerOptions options = greedy();
  options.ignore_eos = true;
  Answer endless(tokenizer_, options, prompt_);
  EXPECT_EQ(push(endless, end).reason, std::nullopt);
  EXPECT_EQ(endless.n_tokens(), 1);
}

TEST_F(AnswerTest, a_thought_that_is_too_long_is_closed_and_what_closes_it_is_said_whole) {
  AnswerOptions options = greedy();
  options.thinking = {
      .opens = "<think>", .closes = "</think>", .max_tokens = 4, .when_out = encode("enough</think>\n")};
  Answer answer(tokenizer_, options, prompt_);
  const std::string text = say(answer, "<think>abcdefghijklmnopqrstuvwxyz and on and on and on it goes for ever");
  const size_t close = text.find("enough</think>\n");
  ASSERT_NE(close, std::string::npos) << text;
  EXPECT_EQ(text.rfind("<think>", 0), 0u) << text;
  EXPECT_NE(text.find("goes for ever", close), std::string::npos) << "the answer goes on: " << text;
  EXPECT_EQ(answer.n_thought_tokens(), 4 + static_cast<int>(encode("enough</think>").size()));
}

TEST_F(AnswerTest, a_thought_the_prompt_opened_counts_from_the_first_token) {
  AnswerOptions options = greedy();
  options.thinking = {.opens = "<think>", .closes = "</think>", .starts_open = true};
  Answer answer(tokenizer_, options, prompt_);
  const std::vector<TokenId> thought = encode("so it is</think>");
  say(answer, "so it is</think>");
  EXPECT_EQ(answer.n_thought_tokens(), static_cast<int>(thought.size()));
  say(answer, "yes");
  EXPECT_EQ(answer.n_thought_tokens(), static_cast<int>(thought.size()));
}

TEST_F(AnswerTest, whoever_thinks_again_after_the_budget_is_told_again) {
  AnswerOptions options = greedy();
  options.thinking = {.opens = "<think>", .closes = "</think>", .max_tokens = 2, .when_out = encode("</think>")};
  Answer answer(tokenizer_, options, prompt_);
  std::string text = say(answer, "<think>abcdefgh ijkl mnop qrst");
  text += say(answer, "<think>abcdefgh ijkl mnop qrst");
  size_t n = 0;
  for (size_t at = text.find("</think>"); at != std::string::npos; at = text.find("</think>", at + 1)) ++n;
  EXPECT_EQ(n, 2u) << text;
}

TEST_F(AnswerTest, logprobs_are_the_models_own_and_only_where_asked_for) {
  AnswerOptions options = greedy();
  options.n_top_logprobs = 3;
  Answer answer(tokenizer_, options, prompt_);
  push(answer, 7);
  EXPECT_EQ(answer.last().id, 7);
  ASSERT_EQ(answer.last().top.size(), 3u);
  EXPECT_EQ(answer.last().top[0].token, 7);
  EXPECT_EQ(answer.last().top[0].logprob, answer.last().logprob);
  EXPECT_LT(answer.last().logprob, 0);
  Answer plain(tokenizer_, greedy(), prompt_);
  push(plain, 7);
  EXPECT_TRUE(plain.last().top.empty());
}

}  // namespace
}  // namespace zinc
