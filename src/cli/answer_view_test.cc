#include "cli/answer_view.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

// What the view writes for reasoning and an answer.
std::string shown(const AnswerViewOptions& options) {
  AnswerView view(options);
  testing::internal::CaptureStdout();
  for (const char* reasoning : {"Two and ", "two."}) view.show(ReasoningDelta{reasoning});
  for (const char* text : {"It is ", "\x1b[2Jfour."}) view.show(ContentDelta{text});
  view.end();
  EXPECT_TRUE(view.written().ok());
  return testing::internal::GetCapturedStdout();
}

TEST(AnswerView, pipe_gets_only_the_answer_byte_for_byte) { EXPECT_EQ(shown({}), "It is \x1b[2Jfour.\n"); }

TEST(AnswerView, terminal_shows_dimmed_reasoning_then_the_sanitized_answer) {
  EXPECT_EQ(shown({.is_terminal = true, .has_colors = true, .width = 80}),
            "\x1b[2mTwo and two.\x1b[0m\n\nIt is ␛[2Jfour.\n");
  EXPECT_EQ(shown({.is_terminal = true, .width = 80}), "(thinking)\nTwo and two.\n(answer)\nIt is ␛[2Jfour.\n");
}

TEST(AnswerView, terminal_wraps_lines_at_blanks) {
  EXPECT_EQ(shown({.is_terminal = true, .width = 9}), "(thinking)\nTwo and\ntwo.\n(answer)\nIt is\n␛[2Jfour.\n");
}

TEST(AnswerView, collects_answer_and_reasoning_separately) {
  AnswerView view({.collects = true});
  testing::internal::CaptureStdout();
  view.show(ReasoningDelta{"reasoning"});
  EXPECT_TRUE(view.is_reasoning());
  view.show(ContentDelta{"answer"});
  EXPECT_FALSE(view.is_reasoning());
  view.end();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(view.reasoning(), "reasoning");
  EXPECT_EQ(view.answer(), "answer");
}

}  // namespace
}  // namespace zinc
