#include "constrain/constraint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "constrain/gbnf.h"
#include "gguf/gguf_file.h"
#include "tests/support/contains_all.h"

namespace zinc {
namespace {

class ConstraintTest : public testing::Test {
 protected:
  ConstraintTest()
      : file_(std::move(
            GgufFile::open(std::filesystem::path(ZINC_SOURCE_DIR) / "tests/data/oracle/models/qwen3-q8_0.gguf")
                .value())),
        tokenizer_(std::move(Tokenizer::load(file_).value())),
        trie_(std::make_shared<const TokenTrie>(tokenizer_)) {}

  std::unique_ptr<Constraint> make(std::string_view grammar) const {
    return std::make_unique<Constraint>(std::move(parse_gbnf(grammar).value()), tokenizer_, trie_);
  }

  GgufFile file_;
  Tokenizer tokenizer_;
  std::shared_ptr<const TokenTrie> trie_;
};

constexpr std::string_view kJson = R"(
  root ::= value
  value ::= object | array | string | number | "true" | "false" | "null"
  object ::= "{" (string ":" value ("," string ":" value)*)? "}"
  array ::= "[" (value ("," value)*)? "]"
  string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
  number ::= "-"? ("0" | [1-9] [0-9]{0,9})
)";

// The trie may skip only tokens that the grammar does not allow.
TEST_F(ConstraintTest, allows_exactly_the_tokens_whose_bytes_reach_a_live_state) {
  const std::unique_ptr<Constraint> json = make(kJson);
  std::mt19937 random(1);
  for (int round = 0; round < 5; ++round) {
    Constraint::Cursor cursor;
    for (int i = 0; i < 40 && !json->must_end(cursor).value(); ++i) {
      const TokenSet allowed_tokens = *json->allowed_tokens(cursor).value();
      std::vector<TokenId> possible;
      for (TokenId id = 0; id < tokenizer_.n_vocab(); ++id) {
        const bool is_allowed = json->allows(cursor, id).value();
        ASSERT_EQ(allowed_tokens.contains(id), is_allowed) << id << ": " << tokenizer_.bytes(id);
        if (is_allowed && !tokenizer_.is_eog(id)) possible.push_back(id);
      }
      ASSERT_FALSE(possible.empty());
      ASSERT_TRUE(json->accept(cursor, possible[random() % possible.size()]).value());
    }
  }
}

TEST_F(ConstraintTest, control_tokens_are_masked_and_eos_is_allowed_only_where_the_text_may_end) {
  const std::unique_ptr<Constraint> any = make("root ::= .+");
  Constraint::Cursor cursor;
  const TokenSet at_start = *any->allowed_tokens(cursor).value();
  ASSERT_TRUE(any->accept(cursor, *tokenizer_.find("a")).value());
  const TokenSet later = *any->allowed_tokens(cursor).value();
  int n_control = 0;
  for (TokenId id = 0; id < tokenizer_.n_vocab(); ++id) {
    if (tokenizer_.is_eog(id)) {
      EXPECT_FALSE(at_start.contains(id));
      EXPECT_TRUE(later.contains(id));
    } else if (tokenizer_.is_control(id)) {
      ++n_control;
      EXPECT_FALSE(later.contains(id)) << tokenizer_.bytes(id);
    }
  }
  EXPECT_GT(n_control, 0);
}

// Each length is a state of its own, so the cache of states is dropped several times on the way.
TEST_F(ConstraintTest, counted_repetition_survives_cache_resets_with_two_cursors) {
  constexpr int kLength = 5000;
  const std::unique_ptr<Constraint> counted = make(fmt::format("root ::= .{{{}}} \"!\"", kLength));
  Constraint::Cursor first, second;
  const TokenId letter = *tokenizer_.find("a"), end = *tokenizer_.find("!");
  ASSERT_TRUE(counted->accept(second, letter).value());
  for (int i = 0; i < kLength; ++i) {
    ASSERT_TRUE(counted->allowed_tokens(first).value()->contains(letter)) << i;
    ASSERT_TRUE(counted->accept(first, letter).value());
  }
  EXPECT_FALSE(counted->allows(first, letter).value());
  ASSERT_TRUE(counted->accept(first, end).value());
  EXPECT_TRUE(counted->must_end(first).value());
  EXPECT_FALSE(counted->must_end(second).value());
  EXPECT_TRUE(counted->allows(second, letter).value());
}

// The states of this text alone are larger than the limit at which the cache is dropped.
TEST_F(ConstraintTest, cache_of_a_long_counted_text_is_not_dropped_for_every_token) {
  constexpr int kLength = 16000;
  const std::unique_ptr<Constraint> counted = make(fmt::format("root ::= [a]{{{}}} \"!\"", kLength));
  Constraint::Cursor cursor;
  const TokenId letter = *tokenizer_.find("a");
  for (int i = 0; i < kLength; ++i) ASSERT_TRUE(counted->accept(cursor, letter).value());
  EXPECT_GE(counted->n_resets(), 1u) << "the text is too short for this test";
  EXPECT_LE(counted->n_resets(), 4u);
}

TEST_F(ConstraintTest, ambiguous_grammar_fails_within_the_work_budget) {
  std::string grammar = "root ::= ";
  for (int i = 0; i < 2000; ++i) grammar += "a* ";
  const std::unique_ptr<Constraint> hostile =
      make(grammar + "\"x\"\na ::= b b? b?\nb ::= \"a\" c?\nc ::= \"a\" | b \"c\"?");
  Constraint::Cursor cursor;
  const TokenId letter = *tokenizer_.find("a");
  for (int i = 0; i < 100'000; ++i) {
    const Result<bool> taken = hostile->accept(cursor, letter);
    if (taken.ok()) continue;
    EXPECT_TRUE(contains_all(taken.error().message, {"too many parser states"}));
    Constraint::Cursor other;
    EXPECT_TRUE(hostile->allows(other, letter).ok()) << "other requests continue";
    return;
  }
  FAIL() << "the work budget was never exceeded";
}

}  // namespace
}  // namespace zinc
