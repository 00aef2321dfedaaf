#include "constrain/constraint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "constrain/gbnf.h"
#include "gguf/gguf_file.h"
#include "tests/support/says.h"

namespace zinc {
namespace {

class ConstraintTest : public testing::Test {
 protected:
  ConstraintTest()
      : file_(std::move(
            GgufFile::open(std::filesystem::path(ZINC_SOURCE_DIR) / "tests/data/oracle/models/qwen3-q8_0.gguf")
                .value())),
        tokenizer_(std::move(Tokenizer::load(file_).value())),
        tree_(std::make_shared<const TokenTree>(tokenizer_)) {}

  std::unique_ptr<Constraint> make(std::string_view grammar) const {
    return std::make_unique<Constraint>(std::move(parse_gbnf(grammar).value()), tokenizer_, tree_);
  }

  GgufFile file_;
  Tokenizer tokenizer_;
  std::shared_ptr<const TokenTree> tree_;
};

constexpr std::string_view kJson = R"(
  root ::= value
  value ::= object | array | string | number | "true" | "false" | "null"
  object ::= "{" (string ":" value ("," string ":" value)*)? "}"
  array ::= "[" (value ("," value)*)? "]"
  string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
  number ::= "-"? ("0" | [1-9] [0-9]{0,9})
)";

// Whatever the tree of tokens passes over could not have come.
TEST_F(ConstraintTest, allows_exactly_the_tokens_that_lead_somewhere) {
  const std::unique_ptr<Constraint> json = make(kJson);
  std::mt19937 random(1);
  for (int round = 0; round < 5; ++round) {
    Constraint::State state = json->start();
    for (int i = 0; i < 40 && !json->must_end(state); ++i) {
      const TokenSet allowed = *json->allowed(state).value();
      std::vector<TokenId> possible;
      for (TokenId id = 0; id < tokenizer_.n_vocab(); ++id) {
        const Constraint::State next = json->next(state, id).value();
        ASSERT_EQ(allowed.contains(id), next != Automaton::kNowhere) << id << ": " << tokenizer_.bytes(id);
        if (next != Automaton::kNowhere && !tokenizer_.is_end(id)) possible.push_back(id);
      }
      ASSERT_FALSE(possible.empty());
      state = json->next(state, possible[random() % possible.size()]).value();
    }
  }
}

TEST_F(ConstraintTest, control_tokens_are_no_text_and_ends_come_where_the_text_may_end) {
  const std::unique_ptr<Constraint> any = make("root ::= .+");
  const TokenSet at_start = *any->allowed(any->start()).value();
  const TokenId letter = *tokenizer_.find("a");
  const TokenSet later = *any->allowed(any->next(any->start(), letter).value()).value();
  int n_control = 0;
  for (TokenId id = 0; id < tokenizer_.n_vocab(); ++id) {
    if (tokenizer_.is_end(id)) {
      EXPECT_FALSE(at_start.contains(id));
      EXPECT_TRUE(later.contains(id));
    } else if (tokenizer_.is_control(id)) {
      ++n_control;
      EXPECT_FALSE(later.contains(id)) << tokenizer_.bytes(id);
    }
  }
  EXPECT_GT(n_control, 0);
}

TEST_F(ConstraintTest, a_grammar_that_can_be_read_in_too_many_ways_is_refused_in_time) {
  std::string grammar = "root ::= ";
  for (int i = 0; i < 2000; ++i) grammar += "a* ";
  const std::unique_ptr<Constraint> hostile =
      make(grammar + "\"x\"\na ::= b b? b?\nb ::= \"a\" c?\nc ::= \"a\" | b \"c\"?");
  Constraint::State state = hostile->start();
  const TokenId letter = *tokenizer_.find("a");
  for (int i = 0; i < 100'000; ++i) {
    const Result<Constraint::State> next = hostile->next(state, letter);
    if (!next.ok()) {
      EXPECT_TRUE(says(next.error().message, {"too many ways"}));
      EXPECT_TRUE(hostile->is_large());
      return;
    }
    ASSERT_NE(next.value(), Automaton::kNowhere);
    state = next.value();
  }
  FAIL() << "it never gave up";
}

}  // namespace
}  // namespace zinc
