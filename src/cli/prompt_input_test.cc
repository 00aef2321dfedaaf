#include "cli/prompt_input.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

TEST(PromptInput, text_and_question_are_joined_by_an_empty_line) {
  EXPECT_EQ(join_prompt("a text\n", "Why?"), "a text\n\nWhy?");
  EXPECT_EQ(join_prompt("two\nlines\r\n\n", "Why?"), "two\nlines\n\nWhy?");
  EXPECT_EQ(join_prompt("a text\n", ""), "a text\n");
  EXPECT_EQ(join_prompt("", "Why?"), "Why?");
  EXPECT_EQ(join_prompt("\n\n", "Why?"), "Why?");
}

TEST(PromptInput, more_than_a_model_and_a_prompt_is_wrong_usage) {
  EXPECT_TRUE(check_arguments({.words = {"m", "Why?"}}).ok());
  EXPECT_TRUE(check_arguments({.words = {"Why?"}, .model = "m"}).ok());
  EXPECT_TRUE(check_arguments({.words = {"m"}, .prompt = "Why?"}).ok());
  EXPECT_FALSE(check_arguments({.words = {"why", "is", "it"}}).ok());
  EXPECT_FALSE(check_arguments({.words = {"why", "me"}, .model = "m"}).ok());
  EXPECT_FALSE(check_arguments({.words = {"m"}, .prompt = ""}).ok());
  EXPECT_TRUE(check_arguments({.words = {"m"}, .prompt = "", .raw = true}).ok());
}

}  // namespace
}  // namespace zinc
