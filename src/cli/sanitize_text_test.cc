#include "cli/sanitize_text.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

using std::string_literals::operator""s;

TEST(SanitizeText, ordinary_text_of_any_script_is_unchanged) {
  EXPECT_EQ(sanitize_text("a\tb\n größe 大小 👩‍👩‍👧"), "a\tb\n größe 大小 👩‍👩‍👧");
}

TEST(SanitizeText, control_characters_are_replaced) {
  EXPECT_EQ(sanitize_text("\x1b[2J\x1b]0;title\a"), "␛[2J␛]0;title␇");
  EXPECT_EQ(sanitize_text("over\rwritten\b\x7f\0"s), "over␍written␈␡␀");
  EXPECT_EQ(sanitize_text("\xc2\x9b"
                          "2J"),
            "\uFFFD2J");
  EXPECT_EQ(sanitize_text("\u202Eabc"), "\uFFFDabc");
  EXPECT_EQ(sanitize_text("a\xff"), "a\uFFFD");
}

}  // namespace
}  // namespace zinc
