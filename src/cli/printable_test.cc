#include "cli/printable.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

using std::string_literals::operator""s;

TEST(Printable, ordinary_text_of_any_script_is_unchanged) {
  EXPECT_EQ(printable("a/b c.gguf: größe, 大小 \\ \"x\""), "a/b c.gguf: größe, 大小 \\ \"x\"");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, nothing_that_moves_the_cursor_gets_through) {
  EXPECT_EQ(printable("two\nlines\tand\r"), "two\\nlines\\tand\\x0d");
  EXPECT_EQ(printable("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(printable("\0\x7f"s), "\\x00\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\x9b2J");  // CSI as one character of the C1 set
  EXPECT_EQ(printable("a\xff"
                      "b\xe2\x82"),
            "a\uFFFD"
            "b\uFFFD");
}

}  // namespace
}  // namespace zinc
