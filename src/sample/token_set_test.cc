#include "sample/token_set.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

using namespace std::string_literals;

TEST(TokenSet, contains_inserted_tokens_and_none_outside_its_vocabulary) {
  TokenSet set(130);
  for (const TokenId token : {0, 63, 64, 129}) set.insert(token);
  int n = 0;
  for (TokenId token = -5; token < 300; ++token) n += set.contains(token);
  EXPECT_EQ(n, 4);
  EXPECT_TRUE(set.contains(129));
  EXPECT_FALSE(set.contains(-1));
  EXPECT_FALSE(TokenSet().contains(0));
}

TEST(TokenSet, tokens_containing_finds_single_bytes_and_longer_texts_anywhere_in_a_token) {
  const std::vector<std::string> vocab = {"a", "b\n", ":", " \"hi\"", "", "<|im_end|>", "x<|im", "\xff", "\0z"s};
  const auto bytes_of = [&](TokenId id) { return std::string_view(vocab[static_cast<size_t>(id)]); };
  const std::vector<std::string> texts = {"\n", ":", "\"", "*", "<|im_end|>", "", "\xff", "\0"s};
  const TokenSet set = tokens_containing(texts, static_cast<int32_t>(vocab.size()), bytes_of);
  std::vector<bool> found;
  for (TokenId id = 0; id < 9; ++id) found.push_back(set.contains(id));
  EXPECT_EQ(found, (std::vector<bool>{false, true, true, true, false, true, false, true, true}));
}

TEST(TokenSet, no_texts_or_no_vocabulary_give_the_empty_set) {
  const auto bytes_of = [](TokenId) { return std::string_view("\n"); };
  const std::vector<std::string> newline = {"\n"};
  EXPECT_FALSE(tokens_containing({}, 3, bytes_of).contains(1));
  EXPECT_FALSE(tokens_containing(newline, 0, bytes_of).contains(0));
}

}  // namespace
}  // namespace zinc
