#include "constrain/constraint.h"

#include <fmt/format.h>
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
    Constraint::Place place;
    for (int i = 0; i < 40 && !json->must_end(place).value(); ++i) {
      const TokenSet allowed = *json->allowed(place).value();
      std::vector<TokenId> possible;
      for (TokenId id = 0; id < tokenizer_.n_vocab(); ++id) {
        const bool is_allowed = json->allows(place, id).value();
        ASSERT_EQ(allowed.contains(id), is_allowed) << id << ": " << tokenizer_.bytes(id);
        if (is_allowed && !tokenizer_.is_end(id)) possible.push_back(id);
      }
      ASSERT_FALSE(possible.empty());
      ASSERT_TRUE(json->take(place, possible[random() % possible.size()]).value());
    }
  }
}

TEST_F(ConstraintTest, control_tokens_are_no_text_and_ends_come_where_the_text_may_end) {
  const std::unique_ptr<Constraint> any = make("root ::= .+");
  Constraint::Place place;
  const TokenSet at_start = *any->allowed(place).value();
  ASSERT_TRUE(any->take(place, *tokenizer_.find("a")).value());
  const TokenSet later = *any->allowed(place).value();
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

// Each length is a state, and each state's tokens lead to more of them: it has to forget several times on the way.
TEST_F(ConstraintTest, a_long_text_whose_length_is_counted_comes_to_its_end_beside_others) {
  constexpr int kLength = 5000;
  const std::unique_ptr<Constraint> counted = make(fmt::format("root ::= .{{{}}} \"!\"", kLength));
  Constraint::Place first, second;
  const TokenId letter = *tokenizer_.find("a"), end = *tokenizer_.find("!");
  ASSERT_TRUE(counted->take(second, letter).value());
  for (int i = 0; i < kLength; ++i) {
    ASSERT_TRUE(counted->allowed(first).value()->contains(letter)) << i;
    ASSERT_TRUE(counted->take(first, letter).value());
  }
  EXPECT_FALSE(counted->allows(first, letter).value());
  ASSERT_TRUE(counted->take(first, end).value());
  EXPECT_TRUE(counted->must_end(first).value());
  EXPECT_FALSE(counted->must_end(second).value());
  EXPECT_TRUE(counted->allows(second, letter).value());
}

TEST_F(ConstraintTest, a_grammar_that_can_be_read_in_too_many_ways_is_refused_in_time) {
  std::string grammar = "root ::= ";
  for (int i = 0; i < 2000; ++i) grammar += "a* ";
  const std::unique_ptr<Constraint> hostile =
      make(grammar + "\"x\"\na ::= b b? b?\nb ::= \"a\" c?\nc ::= \"a\" | b \"c\"?");
  Constraint::Place place;
  const TokenId letter = *tokenizer_.find("a");
  for (int i = 0; i < 100'000; ++i) {
    const Result<bool> taken = hostile->take(place, letter);
    if (taken.ok()) continue;
    EXPECT_TRUE(says(taken.error().message, {"too many ways"}));
    Constraint::Place other;
    EXPECT_TRUE(hostile->allows(other, letter).ok()) << "others go on";
    return;
  }
  FAIL() << "it never gave up";
}

}  // namespace
}  // namespace zinc
