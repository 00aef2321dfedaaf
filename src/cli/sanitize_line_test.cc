#include "cli/sanitize_line.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

using std::string_literals::operator""s;

TEST(SanitizeLine, ordinary_text_of_any_script_is_unchanged) {
  EXPECT_EQ(sanitize_line("a/b c.gguf: größe, 大小 \\ \"x\""), "a/b c.gguf: größe, 大小 \\ \"x\"");
  EXPECT_EQ(sanitize_line(""), "");
}

TEST(SanitizeLine, cursor_controls_are_escaped) {
  EXPECT_EQ(sanitize_line("two\nlines\tand\r"), "two\\nlines\\tand\\x0d");
  EXPECT_EQ(sanitize_line("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(sanitize_line("\0\x7f"s), "\\x00\\x7f");
  EXPECT_EQ(sanitize_line("\xc2\x9b"
                          "2J"),
            "\\x9b2J");  // CSI as one character of the C1 set
  EXPECT_EQ(sanitize_line("a\u202Egpj.exe\u2028"), "a\\x202egpj.exe\\x2028");
  EXPECT_EQ(sanitize_line("a\xff"
                          "b\xe2\x82"),
            "a\uFFFD"
            "b\uFFFD");
}

}  // namespace
}  // namespace zinc
