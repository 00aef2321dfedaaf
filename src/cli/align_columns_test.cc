#include "cli/align_columns.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

TEST(AlignColumns, numbers_are_aligned_to_the_right_and_other_lines_are_unchanged) {
  EXPECT_EQ(
      align_columns("| model | tok/s | test |\n|---|--:|---|\n| a | 12345.6 | pp |\n| long | 7 | tg128 |\n\nend\n"),
      "model    tok/s  test \n"
      "a      12345.6  pp   \n"
      "long         7  tg128\n"
      "\n"
      "end\n");
}

}  // namespace
}  // namespace zinc
