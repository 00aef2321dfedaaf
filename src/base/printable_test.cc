#include "base/printable.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

TEST(Printable, plain_and_international_text_stays) {
  EXPECT_EQ(printable("blk.0.attn_q.weight"), "blk.0.attn_q.weight");
  EXPECT_EQ(printable("größe 漢字"), "größe 漢字");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, controls_quotes_and_invalid_bytes_are_escaped) {
  EXPECT_EQ(printable("a\nb\tc"), "a\\nb\\tc");
  EXPECT_EQ(printable("\x1b[31m"), "\\u001b[31m");
  EXPECT_EQ(printable("it's \\"), "it\\'s \\\\");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\u0000");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\u202e\u2028"), "\\u202e\\u2028");
}

TEST(Printable, long_text_is_cut_between_characters_and_says_so) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abcdef... (7 bytes)");
  EXPECT_EQ(printable("ääää", 3), "ää... (8 bytes)");
}

}  // namespace
}  // namespace zinc
