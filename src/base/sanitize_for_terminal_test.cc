#include "base/sanitize_for_terminal.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

TEST(SanitizeForTerminal, plain_and_international_text_is_unchanged) {
  EXPECT_EQ(sanitize_for_terminal("blk.0.attn_q.weight"), "blk.0.attn_q.weight");
  EXPECT_EQ(sanitize_for_terminal("größe 漢字"), "größe 漢字");
  EXPECT_EQ(sanitize_for_terminal(""), "");
}

TEST(SanitizeForTerminal, controls_quotes_and_invalid_bytes_are_escaped) {
  EXPECT_EQ(sanitize_for_terminal("a\nb\tc"), "a\\nb\\tc");
  EXPECT_EQ(sanitize_for_terminal("\x1b[31m"), "\\u001b[31m");
  EXPECT_EQ(sanitize_for_terminal("it's \\"), "it\\'s \\\\");
  EXPECT_EQ(sanitize_for_terminal(std::string_view("\0", 1)), "\\u0000");
  EXPECT_EQ(sanitize_for_terminal("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(sanitize_for_terminal("\u202e\u2028"), "\\u202e\\u2028");
}

TEST(SanitizeForTerminal, long_text_is_truncated_between_characters) {
  EXPECT_EQ(sanitize_for_terminal("abcdef", 6), "abcdef");
  EXPECT_EQ(sanitize_for_terminal("abcdefg", 6), "abcdef... (7 bytes)");
  EXPECT_EQ(sanitize_for_terminal("ääää", 3), "ää... (8 bytes)");
}

}  // namespace
}  // namespace zinc
