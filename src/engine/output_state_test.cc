#include "engine/output_state.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "constrain/gbnf.h"
#include "engine/thinking_budget.h"
#include "text/message_parser.h"

namespace zinc {
namespace {

// A token is selected by raising its logit.
class OutputStateTest : public testing::Test {
 protected:
  OutputStateTest()
      : file_(std::move(
            GgufFile::open(std::filesystem::path(ZINC_SOURCE_DIR) / "tests/data/oracle/models/qwen3-q8_0.gguf")
                .value())),
        tokenizer_(std::move(Tokenizer::load(file_).value())) {}

  std::vector<TokenId> encode(std::string_view text) const {
    std::vector<TokenId> ids;
    tokenizer_.encode(text, {.parse_special = true}, ids);
    return ids;
  }
  OutputState::TokenResult accept(OutputState& output, TokenId wanted) {
    std::vector<float> logits(static_cast<size_t>(tokenizer_.n_vocab()), 0.0f);
    logits[static_cast<size_t>(wanted)] = 10;
    return output.accept(logits, sampler_, true).value();
  }
  // Makes the model want the text, token by token; returns the output.
  std::string emit(OutputState& output, std::string_view text) {
    std::string out;
    for (const TokenId id : encode(text)) out += accept(output, id).text;
    return out;
  }
  GenerationOptions constrained_by(std::string_view grammar) const {
    GenerationOptions options = greedy();
    options.constraint.grammar = std::make_shared<Constraint>(std::move(parse_gbnf(grammar).value()), tokenizer_,
                                                              std::make_shared<const TokenTrie>(tokenizer_));
    return options;
  }
  // The same until the output ends; returns the output and the stop reason.
  std::pair<std::string, std::optional<StopReason>> emit_until_end(OutputState& output, std::string_view text) {
    std::string out;
    for (const TokenId id : encode(text)) {
      const OutputState::TokenResult result = accept(output, id);
      out += result.text;
      if (result.reason) return {out, result.reason};
    }
    return {out, std::nullopt};
  }
  static GenerationOptions greedy() {
    GenerationOptions options;
    options.sampling.temperature = 0;
    return options;
  }

  GgufFile file_;
  Tokenizer tokenizer_;
  Sampler sampler_;
  const std::vector<TokenId> prompt_ = {1, 2, 3};
};

TEST_F(OutputStateTest, ends_at_an_end_token_unless_ignore_eos_is_set) {
  const TokenId end = tokenizer_.eog_tokens().front();
  OutputState output(tokenizer_, greedy(), prompt_);
  const OutputState::TokenResult result = accept(output, end);
  EXPECT_EQ(result.reason, StopReason::end_token);
  EXPECT_FALSE(result.is_output);
  EXPECT_EQ(output.n_tokens(), 0);

  GenerationOptions options = greedy();
  options.ignore_eos = true;
  OutputState endless(tokenizer_, options, prompt_);
  EXPECT_EQ(accept(endless, end).reason, std::nullopt);
  EXPECT_EQ(endless.n_tokens(), 1);
}

TEST_F(OutputStateTest, no_end_token_is_sampled_before_the_minimum_length) {
  GenerationOptions options = greedy();
  options.min_tokens = 2;
  options.n_top_logprobs = 0;
  OutputState output(tokenizer_, options, prompt_);
  const TokenId end = tokenizer_.eog_tokens().front();
  EXPECT_EQ(accept(output, end).reason, std::nullopt);
  EXPECT_EQ(accept(output, end).reason, std::nullopt);
  EXPECT_EQ(accept(output, end).reason, StopReason::end_token);
  EXPECT_EQ(output.n_tokens(), 2);
  ASSERT_TRUE(output.end_token());
  EXPECT_EQ(output.end_token()->id, end);
  EXPECT_FALSE(output.device_sampling(0)) << "the host rules the end token out";
}

TEST_F(OutputStateTest, stop_tokens_end_the_output_and_other_tokens_than_the_allowed_are_never_sampled) {
  GenerationOptions options = greedy();
  options.stop_tokens = {65};
  options.ignore_eos = true;
  OutputState output(tokenizer_, options, prompt_);
  EXPECT_EQ(accept(output, 66).reason, std::nullopt);
  const OutputState::TokenResult stopped = accept(output, 65);
  EXPECT_EQ(stopped.reason, StopReason::end_token);
  EXPECT_FALSE(stopped.is_output);

  GenerationOptions limited = greedy();
  auto allowed = std::make_shared<TokenSet>(static_cast<size_t>(tokenizer_.n_vocab()));
  allowed->insert(70);
  limited.allowed_tokens = allowed;
  OutputState only(tokenizer_, limited, prompt_);
  EXPECT_EQ(accept(only, 66).id, 70);

  for (const float temperature : {0.0f, 1.0f}) {
    GenerationOptions both = constrained_by("root ::= [a-z] \"!\"");
    auto letters = std::make_shared<TokenSet>(static_cast<size_t>(tokenizer_.n_vocab()));
    for (const char* text : {"q", "Q", "!"}) letters->insert(*tokenizer_.find(text));
    both.allowed_tokens = letters;
    both.sampling.temperature = temperature;
    OutputState in_both(tokenizer_, both, prompt_);
    EXPECT_EQ(accept(in_both, *tokenizer_.find("b")).text, "q") << "allowed by the grammar and by the list";
  }
}

TEST_F(OutputStateTest, reasoning_over_the_budget_is_closed_with_the_whole_forced_end) {
  GenerationOptions options = greedy();
  options.thinking = {
      .open_tag = "<think>", .close_tag = "</think>", .max_tokens = 4, .forced_end = encode("enough</think>\n")};
  OutputState output(tokenizer_, options, prompt_);
  const std::string text = emit(output, "<think>abcdefghijklmnopqrstuvwxyz and on and on and on it goes for ever");
  const size_t close = text.find("enough</think>\n");
  ASSERT_NE(close, std::string::npos) << text;
  EXPECT_EQ(text.rfind("<think>", 0), 0u) << text;
  EXPECT_NE(text.find("goes for ever", close), std::string::npos) << "the output continues: " << text;
  EXPECT_EQ(output.n_reasoning_tokens(), 4 + static_cast<int>(encode("enough</think>").size()));
}

TEST_F(OutputStateTest, reasoning_opened_by_the_prompt_counts_from_the_first_token) {
  GenerationOptions options = greedy();
  options.thinking = {.open_tag = "<think>", .close_tag = "</think>", .starts_open = true};
  OutputState output(tokenizer_, options, prompt_);
  const std::vector<TokenId> reasoning = encode("so it is</think>");
  emit(output, "so it is</think>");
  EXPECT_EQ(output.n_reasoning_tokens(), static_cast<int>(reasoning.size()));
  emit(output, "yes");
  EXPECT_EQ(output.n_reasoning_tokens(), static_cast<int>(reasoning.size()));
}

TEST_F(OutputStateTest, a_second_reasoning_block_over_the_budget_is_closed_again) {
  GenerationOptions options = greedy();
  options.thinking = {
      .open_tag = "<think>", .close_tag = "</think>", .max_tokens = 2, .forced_end = encode("</think>")};
  OutputState output(tokenizer_, options, prompt_);
  std::string text = emit(output, "<think>abcdefgh ijkl mnop qrst");
  text += emit(output, "<think>abcdefgh ijkl mnop qrst");
  size_t n = 0;
  for (size_t at = text.find("</think>"); at != std::string::npos; at = text.find("</think>", at + 1)) ++n;
  EXPECT_EQ(n, 2u) << text;
}

TEST_F(OutputStateTest, forced_end_is_the_familys_own_marker_and_leads_into_the_answer) {
  const auto forced_end = [&](const char* format, bool may_call_tools) {
    const ThinkingBudget budget = make_thinking_budget(*find_tool_format(format), tokenizer_,
                                                       {.max_tokens = 4, .may_call_tools = may_call_tools});
    std::string text;
    for (const TokenId id : budget.forced_end) text += tokenizer_.bytes(id);
    return text;
  };
  EXPECT_TRUE(forced_end("qwen3", false).ends_with("directly now.\n</think>\n\n"));
  EXPECT_EQ(forced_end("gemma4", false), "<channel|>");
  EXPECT_EQ(forced_end("gpt-oss", false), "<|end|><|start|>assistant<|channel|>final<|message|>");
  EXPECT_EQ(forced_end("gpt-oss", true), "<|end|><|start|>assistant") << "the model may call a tool instead";
  EXPECT_EQ(forced_end("llama3", false), "") << "no reasoning";
}

TEST_F(OutputStateTest, reasoning_of_gpt_oss_over_the_budget_continues_in_the_final_channel) {
  GenerationOptions options = greedy();
  options.show_control = true;
  options.thinking = make_thinking_budget(*find_tool_format("gpt-oss"), tokenizer_, {.max_tokens = 2});
  OutputState output(tokenizer_, options, prompt_);
  const std::string text = emit(output, "<|channel|>analysis<|message|>" + std::string(200, 'x') + " and on and on");
  const Message message = parse_message(*find_tool_format("gpt-oss"), {}, text);
  EXPECT_FALSE(message.reasoning_content.empty()) << text;
  EXPECT_NE(message.content.find("on and on"), std::string::npos) << text;
  EXPECT_EQ(message.content.find('<'), std::string::npos) << text;
}

TEST_F(OutputStateTest, logprobs_are_the_models_own_and_only_if_requested) {
  GenerationOptions options = greedy();
  options.n_top_logprobs = 3;
  OutputState output(tokenizer_, options, prompt_);
  accept(output, 7);
  EXPECT_EQ(output.last().id, 7);
  ASSERT_EQ(output.last().top.size(), 3u);
  EXPECT_EQ(output.last().top[0].token, 7);
  EXPECT_EQ(output.last().top[0].logprob, output.last().logprob);
  EXPECT_LT(output.last().logprob, 0);
  OutputState plain(tokenizer_, greedy(), prompt_);
  accept(plain, 7);
  EXPECT_TRUE(plain.last().top.empty());
}

TEST_F(OutputStateTest, a_constrained_output_follows_its_grammar_and_ends_with_it) {
  OutputState wanted(tokenizer_, constrained_by("root ::= \"yes\" | \"no\""), prompt_);
  EXPECT_EQ(emit_until_end(wanted, "no and more"), std::pair(std::string("no"), std::optional(StopReason::end_token)));
  EXPECT_GT(wanted.n_tokens(), 0);

  OutputState unwanted(tokenizer_, constrained_by("root ::= [0-9]{3} \"!\""), prompt_);
  const auto [text, reason] = emit_until_end(unwanted, "I would rather not say a number at all");
  EXPECT_EQ(reason, StopReason::end_token);
  ASSERT_EQ(text.size(), 4u) << text;
  EXPECT_EQ(text.find_first_not_of("0123456789"), 3u) << text;
  EXPECT_EQ(unwanted.device_sampling(0), std::nullopt);
}

TEST_F(OutputStateTest, an_output_ends_no_sooner_than_its_grammar_allows) {
  const TokenId end = tokenizer_.eog_tokens().front();
  OutputState output(tokenizer_, constrained_by("root ::= \"a\"+"), prompt_);
  EXPECT_TRUE(accept(output, end).is_output) << "the output is still empty";
  const OutputState::TokenResult result = accept(output, end);
  EXPECT_FALSE(result.is_output);
  EXPECT_EQ(result.reason, StopReason::end_token);
}

TEST_F(OutputStateTest, a_grammar_is_enforced_at_any_temperature) {
  GenerationOptions options = constrained_by("root ::= \"[\" [a-z]{2} (\",\" [a-z]{2}){3} \"]\"");
  options.sampling = {.temperature = 2, .top_k = 40, .top_p = 0.9f, .seed = 3};
  for (uint64_t stream = 0; stream < 20; ++stream) {
    options.stream = stream;
    OutputState output(tokenizer_, options, prompt_);
    const auto [text, reason] = emit_until_end(output, std::string(200, 'x'));
    EXPECT_EQ(reason, StopReason::end_token) << text;
    EXPECT_EQ(text.size(), 13u) << text;
  }
}

TEST_F(OutputStateTest, reasoning_before_the_constraint_is_free_and_cannot_be_the_whole_output) {
  GenerationOptions options = constrained_by("root ::= \"yes\"");
  options.thinking = {.open_tag = "<think>", .close_tag = "</think>", .starts_open = true};
  options.constraint.separator = encode("\n").front();
  const TokenId end = tokenizer_.eog_tokens().front();
  OutputState output(tokenizer_, options, prompt_);
  EXPECT_EQ(emit(output, "free as a bird"), "free as a bird");
  EXPECT_TRUE(accept(output, end).is_output);
  EXPECT_EQ(emit(output, "</think>\n"), "</think>\n");
  EXPECT_EQ(emit_until_end(output, "no no no no"), std::pair(std::string("yes"), std::optional(StopReason::end_token)));
}

TEST_F(OutputStateTest, the_constraint_follows_reasoning_that_was_cut_off) {
  GenerationOptions options = constrained_by("root ::= \"yes\"");
  options.thinking = {.open_tag = "<think>",
                      .close_tag = "</think>",
                      .starts_open = true,
                      .max_tokens = 2,
                      .forced_end = encode("enough</think>\n\n")};
  OutputState output(tokenizer_, options, prompt_);
  const auto [text, reason] = emit_until_end(output, "a b c d e f g h i j k l m n o p q r s t u v w x y z");
  EXPECT_EQ(reason, StopReason::end_token) << text;
  EXPECT_NE(text.find("enough</think>\n\nyes"), std::string::npos) << text;
}

TEST_F(OutputStateTest, reasoning_that_the_model_opens_itself_is_not_constrained) {
  GenerationOptions options = constrained_by("root ::= \"yes\"");
  options.thinking = {.open_tag = "(the", .close_tag = ")"};
  options.constraint.reasoning_open = encode("(").front();
  OutputState thinks(tokenizer_, options, prompt_);
  EXPECT_EQ(emit_until_end(thinks, "(what now)no no no no no").first, "(what now)yes");
  OutputState late(tokenizer_, constrained_by("root ::= \"yes\"+"), prompt_);
  EXPECT_EQ(emit(late, "yes("), "yesy") << "not after the start of the constrained text";
}

TEST_F(OutputStateTest, a_reasoning_tag_inside_constrained_text_is_text) {
  GenerationOptions options = constrained_by("root ::= [^!]* \"!\"");
  options.thinking = {
      .open_tag = "<think>", .close_tag = "</think>", .max_tokens = 0, .forced_end = encode("enough</think>")};
  OutputState output(tokenizer_, options, prompt_);
  const auto [text, reason] = emit_until_end(output, "so <think> and on it goes!");
  EXPECT_EQ(text, "so <think> and on it goes!");
  EXPECT_EQ(reason, StopReason::end_token);
}

}  // namespace
}  // namespace zinc
