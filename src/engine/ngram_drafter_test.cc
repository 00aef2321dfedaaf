#include "engine/ngram_drafter.h"

#include <gtest/gtest.h>

#include <numeric>

namespace zinc {
namespace {

std::vector<TokenId> draft(NgramDrafter& drafter, RequestId id, const std::vector<TokenId>& tokens, int max_tokens) {
  std::vector<DraftQuery> queries = {{.id = id, .tokens = tokens, .max_tokens = max_tokens}};
  EXPECT_EQ(drafter.has_draft(queries[0]), [&] {
    EXPECT_TRUE(drafter.draft(queries).ok());
    return !queries[0].draft.empty();
  }());
  return queries[0].draft;
}
using Tokens = std::vector<TokenId>;

TEST(NgramDrafter, drafts_the_tokens_after_the_last_occurrence_of_the_last_three) {
  NgramDrafter drafter;
  EXPECT_EQ(draft(drafter, 1, {1, 2, 3, 4, 5, 6, 9, 1, 2, 3}, 2), Tokens({4, 5}));
  EXPECT_EQ(draft(drafter, 1, {1, 2, 3, 4, 5, 6, 9, 1, 2, 3, 7}, 2), Tokens());
  EXPECT_EQ(draft(drafter, 2, {1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3}, 1), Tokens({5}));
  EXPECT_EQ(draft(drafter, 3, {1, 2}, 4), Tokens());
}

TEST(NgramDrafter, prefers_the_longest_match) {
  NgramDrafter drafter;
  EXPECT_EQ(draft(drafter, 1, {8, 1, 2, 3, 4, 9, 1, 2, 3, 5, 8, 1, 2, 3}, 1), Tokens({4}));
}

TEST(NgramDrafter, a_repetition_that_reaches_the_end_goes_on) {
  NgramDrafter drafter;
  EXPECT_EQ(draft(drafter, 1, {1, 2, 3, 1, 2, 3}, 7), Tokens({1, 2, 3, 1, 2, 3, 1}));
  EXPECT_EQ(draft(drafter, 2, {4, 4, 4, 4}, 3), Tokens({4, 4, 4}));
}

TEST(NgramDrafter, follows_the_prediction_from_its_start_and_after_a_deviation) {
  NgramDrafter drafter;
  drafter.set_prediction(1, 2, Tokens({11, 12, 13, 14, 15, 16, 17, 18}));
  EXPECT_EQ(draft(drafter, 1, {1, 2}, 3), Tokens({11, 12, 13}));
  EXPECT_EQ(draft(drafter, 1, {1, 2, 11}, 2), Tokens({12, 13}));
  EXPECT_EQ(draft(drafter, 1, {1, 2, 11, 99}, 2), Tokens());
  EXPECT_EQ(draft(drafter, 1, {1, 2, 11, 99, 13, 14, 15}, 7), Tokens({16, 17, 18}));
}

TEST(NgramDrafter, a_prediction_of_one_frequent_token_is_followed_at_its_position) {
  NgramDrafter drafter;
  Tokens prediction(500, 5);
  prediction[100] = 8;
  prediction[101] = 9;
  drafter.set_prediction(1, 2, prediction);
  Tokens tokens = {1, 2};
  for (int i = 0; i < 99; ++i) {
    tokens.push_back(5);
    draft(drafter, 1, tokens, 2);
  }
  EXPECT_EQ(draft(drafter, 1, tokens, 3), Tokens({5, 8, 9}));
}

TEST(NgramDrafter, a_long_sequence_is_indexed_by_several_calls) {
  NgramDrafter drafter;
  const Tokens tokens(100'000, 5);
  EXPECT_EQ(draft(drafter, 1, tokens, 2), Tokens({5}));
  for (int i = 0; i < 30; ++i) draft(drafter, 1, tokens, 2);
  EXPECT_EQ(draft(drafter, 1, tokens, 2), Tokens({5, 5}));
}

TEST(NgramDrafter, a_long_prediction_is_indexed_by_several_calls) {
  NgramDrafter drafter;
  Tokens prediction(100'000);
  std::iota(prediction.begin(), prediction.end(), 10);
  drafter.set_prediction(1, 2, prediction);
  EXPECT_EQ(draft(drafter, 1, {1, 2}, 2), Tokens({10, 11}));
  const Tokens deep = {1, 2, 90'000, 90'001, 90'002};
  EXPECT_EQ(draft(drafter, 1, deep, 2), Tokens());
  for (int i = 0; i < 24; ++i) draft(drafter, 2, {1, 2, 3}, 2);  // of another sequence
  EXPECT_EQ(draft(drafter, 1, deep, 2), Tokens());
  std::vector<DraftQuery> queries = {{.id = 1, .tokens = deep, .max_tokens = 2}};
  for (int i = 0; i < 24; ++i) drafter.has_draft(queries[0]);
  EXPECT_EQ(draft(drafter, 1, deep, 2), Tokens({90'003, 90'004}));
}

}  // namespace
}  // namespace zinc
