#include "sample/dry.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace zinc {
namespace {

constexpr size_t kVocab = 64;
using Tokens = std::vector<TokenId>;
using Lengths = std::map<TokenId, int32_t>;

Lengths repetitions(const Tokens& history, int32_t allowed_length, const TokenSet& breakers = {}) {
  TokenCounts longest;
  longest.reset(kVocab);
  find_repetitions(history, allowed_length, breakers, longest);
  Lengths found;
  for (const TokenId token : longest.touched()) found[token] = longest[token];
  return found;
}

// The definition, tried at every position.
Lengths naive_repetitions(const Tokens& history, int32_t allowed_length, const TokenSet& breakers) {
  Lengths found;
  const auto n = history.size();
  for (size_t next = 1; next < n; ++next) {
    int32_t length = 0;
    for (size_t i = 1; i <= next && length < kMaxDryMatch; ++i, ++length) {
      if (history[next - i] != history[n - i] || breakers.contains(history[n - i])) break;
    }
    if (length >= allowed_length && !breakers.contains(history[next])) {
      found[history[next]] = std::max(found[history[next]], length);
    }
  }
  return found;
}

TokenSet set_of(const Tokens& tokens) {
  TokenSet set(kVocab);
  for (const TokenId token : tokens) set.insert(token);
  return set;
}

TEST(Dry, penalty_follows_the_formula) {
  const SamplingParams params{.dry_multiplier = 0.8f};  // base 1.75, allowed length 2
  EXPECT_NEAR(dry_penalty(params, 2), 0.8, 1e-6);
  EXPECT_NEAR(dry_penalty(params, 3), 1.4, 1e-6);
  EXPECT_NEAR(dry_penalty(params, 5), 4.3, 0.05);
  EXPECT_NEAR(dry_penalty(params, 9), 40.2, 0.05);
}

TEST(Dry, penalty_stays_finite_at_the_ends_of_the_valid_range) {
  SamplingParams params{.dry_multiplier = 1000.0f};
  params.dry_base = 100.0f;
  params.dry_allowed_length = 1;
  ASSERT_TRUE(validate(params, 1).ok());
  EXPECT_EQ(dry_penalty(params, kMaxDryMatch), std::numeric_limits<float>::max());
}

TEST(Dry, the_token_that_followed_the_longest_match_is_found_with_its_length) {
  EXPECT_EQ(repetitions({1, 2, 3, 4, 9, 1, 2, 3}, 2), (Lengths{{4, 3}}));
  EXPECT_EQ(repetitions({1, 2, 5, 8, 1, 2, 6, 9, 1, 2}, 2), (Lengths{{5, 2}, {6, 2}}));
  EXPECT_EQ(repetitions({7, 1, 2, 5, 1, 2, 5, 7, 1, 2}, 2), (Lengths{{5, 3}}));
}

TEST(Dry, matches_shorter_than_allowed_have_no_penalty) {
  EXPECT_EQ(repetitions({1, 2, 3, 9, 1, 2}, 3), Lengths{});
  EXPECT_EQ(repetitions({1, 2, 3, 9, 1, 2}, 2), (Lengths{{3, 2}}));
}

TEST(Dry, histories_too_short_to_repeat_are_fine) {
  EXPECT_EQ(repetitions({}, 2), Lengths{});
  EXPECT_EQ(repetitions({1}, 1), Lengths{});
  EXPECT_EQ(repetitions({1, 1}, 1), (Lengths{{1, 1}}));
}

TEST(Dry, a_breaker_ends_every_match_and_is_never_penalized) {
  EXPECT_EQ(repetitions({1, 2, 3, 4, 9, 1, 2, 3}, 2, set_of({1})), (Lengths{{4, 2}}));
  EXPECT_EQ(repetitions({1, 2, 3, 4, 9, 1, 2, 3}, 2, set_of({2})), Lengths{});
  EXPECT_EQ(repetitions({1, 2, 3, 4, 9, 1, 2, 3}, 2, set_of({4})), Lengths{});
}

TEST(Dry, chatml_preamble_is_not_penalized) {
  enum : TokenId { kStart = 10, kEnd, kUser, kAssistant, kNewline };
  const TokenSet breakers = set_of({kNewline});
  const Tokens turns = {kStart,   kUser,  kNewline, 1,        2, kEnd, kNewline, kStart, kAssistant, kNewline, 3, kEnd,
                        kNewline, kStart, kUser,    kNewline, 4, kEnd, kNewline, kStart, kAssistant, kNewline};
  for (size_t n = turns.size(); n > 13; --n) {  // the whole second round, token by token
    EXPECT_EQ(repetitions(Tokens(turns.begin(), turns.begin() + static_cast<ptrdiff_t>(n)), 2, breakers), Lengths{});
  }
  EXPECT_NE(repetitions(turns, 2), Lengths{});  // without breakers it is found
}

TEST(Dry, equals_the_definition_on_random_and_periodic_histories) {
  std::mt19937 engine(3);
  for (int round = 0; round < 3000; ++round) {
    const size_t n_tokens = engine() % 200;
    const TokenId alphabet = 1 + static_cast<TokenId>(engine() % 6);
    const size_t period = engine() % 3 == 0 ? 1 + engine() % 70 : n_tokens;
    Tokens history(n_tokens);
    for (size_t i = 0; i < n_tokens; ++i) {
      history[i] = i < period ? static_cast<TokenId>(engine()) & 0x7fff : history[i - period];
      if (i < period) history[i] %= alphabet;
    }
    if (n_tokens > 0 && engine() % 2) history[engine() % n_tokens] = 7;
    const auto allowed = static_cast<int32_t>(1 + engine() % 4);
    const TokenSet breakers = engine() % 2 ? set_of({0}) : TokenSet();
    ASSERT_EQ(repetitions(history, allowed, breakers), naive_repetitions(history, allowed, breakers))
        << "round " << round;
  }
}

TEST(Dry, placeholders_outside_the_vocabulary_are_matched_but_not_counted) {
  EXPECT_EQ(repetitions({-1, 2, 5, -1, 2}, 2), (Lengths{{5, 2}}));
  EXPECT_EQ(repetitions({1, 2, -1, 1, 2}, 2), Lengths{});
  EXPECT_EQ(repetitions({1, 2, 1 << 30, 1, 2}, 2), Lengths{});
}

}  // namespace
}  // namespace zinc
