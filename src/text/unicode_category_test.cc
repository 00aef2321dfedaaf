#include "text/unicode_category.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

TEST(UnicodeCategory, one_character_of_each_class) {
  EXPECT_EQ(unicode_class('A'), kLetter);
  EXPECT_EQ(unicode_class(U'é'), kLetter);
  EXPECT_EQ(unicode_class(U'漢'), kLetter);
  EXPECT_EQ(unicode_class('7'), kNumber);
  EXPECT_EQ(unicode_class(U'½'), kNumber);
  EXPECT_EQ(unicode_class(U'٣'), kNumber);
  EXPECT_EQ(unicode_class(0x0301), kMark);
  EXPECT_EQ(unicode_class('!'), kPunctuation);
  EXPECT_EQ(unicode_class('_'), kPunctuation);
  EXPECT_EQ(unicode_class('$'), kSymbol);
  EXPECT_EQ(unicode_class(0x1F600), kSymbol);
}

TEST(UnicodeCategory, white_space_has_no_other_class) {
  for (const char32_t code : {0x09u, 0x0Au, 0x0Du, 0x20u, 0x85u, 0xA0u, 0x2003u, 0x2028u, 0x3000u}) {
    EXPECT_EQ(unicode_class(code), kSpace) << static_cast<uint32_t>(code);
  }
}

TEST(UnicodeCategory, control_format_and_unassigned_characters_have_no_class) {
  for (const char32_t code : {0x00u, 0x1Cu, 0x7Fu, 0x200Bu, 0x200Du, 0xFEFFu, 0xD800u, 0xE000u, 0x10FFFFu, 0x110000u}) {
    EXPECT_EQ(unicode_class(code), 0) << static_cast<uint32_t>(code);
  }
}

TEST(UnicodeCategory, characters_of_unicode_15_are_known) {
  EXPECT_EQ(unicode_class(0x31350), kLetter);  // CJK extension H, 15.0
  EXPECT_EQ(unicode_class(0x2EBF0), kLetter);  // CJK extension I, 15.1
  EXPECT_EQ(unicode_class(0x1FAE8), kSymbol);  // shaking face, 15.0
}

// Totals detect a table generated from other data.
TEST(UnicodeCategory, class_sizes_are_those_of_unicode_15_1) {
  int n_letters = 0, n_numbers = 0, n_marks = 0, n_spaces = 0;
  for (char32_t code = 0; code < kUnicodeCodes; ++code) {
    n_letters += unicode_class(code) == kLetter;
    n_numbers += unicode_class(code) == kNumber;
    n_marks += unicode_class(code) == kMark;
    n_spaces += unicode_class(code) == kSpace;
  }
  EXPECT_EQ(n_letters, 136726);
  EXPECT_EQ(n_numbers, 1831);
  EXPECT_EQ(n_marks, 2450);
  EXPECT_EQ(n_spaces, 25);
}

}  // namespace
}  // namespace zinc
