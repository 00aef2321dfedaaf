#include "text/unicode_case.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace zinc {
namespace {

std::string in_case(char32_t code, Case wanted) {
  std::string text;
  append_in_case(text, code, wanted);
  return text;
}

TEST(UnicodeCase, maps_one_character_to_several_where_unicode_does) {
  EXPECT_EQ(in_case(U'ß', Case::upper), "SS");
  EXPECT_EQ(in_case(U'ﬃ', Case::upper), "FFI");
  EXPECT_EQ(in_case(U'ﬃ', Case::title), "Ffi");
  EXPECT_EQ(in_case(U'İ', Case::lower), "i\u0307");
}

TEST(UnicodeCase, knows_title_case_apart_from_upper_case) {
  EXPECT_EQ(in_case(U'ǆ', Case::upper), "Ǆ");
  EXPECT_EQ(in_case(U'ǆ', Case::title), "ǅ");
}

TEST(UnicodeCase, maps_alternating_runs_and_far_planes) {
  EXPECT_EQ(in_case(U'ā', Case::upper), "Ā");
  EXPECT_EQ(in_case(U'Ā', Case::lower), "ā");
  EXPECT_EQ(in_case(U'Ā', Case::upper), "Ā");
  EXPECT_EQ(in_case(U'𐐨', Case::upper), "𐐀");
  EXPECT_EQ(in_case(U'日', Case::upper), "日");
  EXPECT_EQ(in_case(U'z', Case::upper), "Z");
}

TEST(UnicodeCase, classifies_characters_as_python_does) {
  EXPECT_TRUE(is_alpha(U'é') && is_alpha(U'日') && !is_alpha(U'1') && !is_alpha(U'_'));
  EXPECT_TRUE(is_decimal(U'٣') && !is_decimal(U'²') && is_digit(U'²') && !is_digit(U'½') && is_numeric(U'½'));
  EXPECT_TRUE(is_upper(U'É') && is_lower(U'é') && is_cased(U'ǅ') && !is_cased(U'日'));
  EXPECT_TRUE(is_space(U'\u00A0') && is_space(U'\u3000') && is_space(U'\x1C') && !is_space(U'\u200B'));
  EXPECT_TRUE(is_printable(U'é') && !is_printable(U'\u200B') && !is_printable(U'\u00A0') && !is_printable(U'\x7F'));
}

}  // namespace
}  // namespace zinc
