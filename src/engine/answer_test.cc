#include "engine/answer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "constrain/gbnf.h"

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
  AnswerOptions in_form(std::string_view grammar) const {
    AnswerOptions options = greedy();
    options.form.constraint = std::make_shared<Constraint>(std::move(parse_gbnf(grammar).value()), tokenizer_,
                                                           std::make_shared<const TokenTree>(tokenizer_));
    return options;
  }
  // Says what it is made to want until the answer is over; what came out, and why it ended.
  std::pair<std::string, std::optional<StopReason>> insist(Answer& answer, std::string_view text) {
    std::string out;
    for (const TokenId id : encode(text)) {
      const Answer::Step step = push(answer, id);
      out += step.text;
      if (step.reason) return {out, step.reason};
    }
    return {out, std::nullopt};
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

TEST_F(AnswerTest, in_a_form_only_what_it_allows_is_said_and_the_answer_ends_with_it) {
  Answer wanted(tokenizer_, in_form("root ::= \"yes\" | \"no\""), prompt_);
  EXPECT_EQ(insist(wanted, "no and more"), std::pair(std::string("no"), std::optional(StopReason::end_token)));
  EXPECT_GT(wanted.n_tokens(), 0);

  Answer unwanted(tokenizer_, in_form("root ::= [0-9]{3} \"!\""), prompt_);
  const auto [text, reason] = insist(unwanted, "I would rather not say a number at all");
  EXPECT_EQ(reason, StopReason::end_token);
  ASSERT_EQ(text.size(), 4u) << text;
  EXPECT_EQ(text.find_first_not_of("0123456789"), 3u) << text;
  EXPECT_EQ(unwanted.device_draw(0), std::nullopt);
}

TEST_F(AnswerTest, an_answer_ends_no_sooner_than_its_form_allows) {
  const TokenId end = tokenizer_.end_tokens().front();
  Answer answer(tokenizer_, in_form("root ::= \"a\"+"), prompt_);
  EXPECT_TRUE(push(answer, end).in_answer) << "nothing is said yet";
  const Answer::Step step = push(answer, end);
  EXPECT_FALSE(step.in_answer);
  EXPECT_EQ(step.reason, StopReason::end_token);
}

TEST_F(AnswerTest, a_form_drawn_at_any_temperature_is_kept) {
  AnswerOptions options = in_form("root ::= \"[\" [a-z]{2} (\",\" [a-z]{2}){3} \"]\"");
  options.sampling = {.temperature = 2, .top_k = 40, .top_p = 0.9f, .seed = 3};
  for (uint64_t stream = 0; stream < 20; ++stream) {
    options.stream = stream;
    Answer answer(tokenizer_, options, prompt_);
    const auto [text, reason] = insist(answer, std::string(200, 'x'));
    EXPECT_EQ(reason, StopReason::end_token) << text;
    EXPECT_EQ(text.size(), 13u) << text;
  }
}

TEST_F(AnswerTest, a_thought_before_the_form_is_free_and_cannot_be_the_whole_answer) {
  AnswerOptions options = in_form("root ::= \"yes\"");
  options.form.begins_after = {"</think>"};
  options.form.gap = encode("\n").front();
  const TokenId end = tokenizer_.end_tokens().front();
  Answer answer(tokenizer_, options, prompt_);
  EXPECT_EQ(say(answer, "free as a bird"), "free as a bird");
  EXPECT_TRUE(push(answer, end).in_answer);
  EXPECT_EQ(say(answer, "</think>\n"), "</think>\n");
  EXPECT_EQ(insist(answer, "no no no no"), std::pair(std::string("yes"), std::optional(StopReason::end_token)));
}

TEST_F(AnswerTest, a_thought_that_is_cut_off_leads_to_the_form) {
  AnswerOptions options = in_form("root ::= \"yes\"");
  options.form.begins_after = {"</think>"};
  options.thinking = {.opens = "<think>",
                      .closes = "</think>",
                      .starts_open = true,
                      .max_tokens = 2,
                      .when_out = encode("enough</think>\n\n")};
  Answer answer(tokenizer_, options, prompt_);
  const auto [text, reason] = insist(answer, "a b c d e f g h i j k l m n o p q r s t u v w x y z");
  EXPECT_EQ(reason, StopReason::end_token) << text;
  EXPECT_NE(text.find("enough</think>\n\nyes"), std::string::npos) << text;
}

TEST_F(AnswerTest, what_may_stand_in_the_place_of_the_form_sets_the_answer_free) {
  const TokenId call = encode("{").front(), think = encode("(").front();
  AnswerOptions options = in_form("root ::= \"yes\"");
  options.form.instead = {{call, ""}, {think, ")"}};
  Answer calls(tokenizer_, options, prompt_);
  EXPECT_EQ(say(calls, "{anything"), "{anything");
  Answer thinks(tokenizer_, options, prompt_);
  EXPECT_EQ(insist(thinks, "(what now)no no no no no").first, "(what now)yes");
  Answer late(tokenizer_, in_form("root ::= \"yes\"+"), prompt_);
  EXPECT_EQ(say(late, "yes{"), "yesy") << "not behind the beginning";
}

TEST_F(AnswerTest, what_looks_like_a_thought_inside_a_form_is_text_of_it) {
  AnswerOptions options = in_form("root ::= [^!]* \"!\"");
  options.thinking = {.opens = "<think>", .closes = "</think>", .max_tokens = 0, .when_out = encode("enough</think>")};
  Answer answer(tokenizer_, options, prompt_);
  const auto [text, reason] = insist(answer, "so <think> and on it goes!");
  EXPECT_EQ(text, "so <think> and on it goes!");
  EXPECT_EQ(reason, StopReason::end_token);
}

}  // namespace
}  // namespace zinc
