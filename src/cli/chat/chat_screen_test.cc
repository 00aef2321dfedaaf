#include "cli/chat/chat_screen.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

std::string shown(ChatScreen screen, const std::vector<Delta>& deltas) {
  testing::internal::CaptureStdout();
  screen.begin_answer();
  for (const Delta& delta : deltas) screen.show(delta);
  screen.end_answer();
  return testing::internal::GetCapturedStdout();
}

const std::vector<Delta> kThoughtful = {ReasoningDelta{"let me "}, ReasoningDelta{"think"}, ContentDelta{"It **is**"},
                                        ContentDelta{" so."}};

TEST(ChatScreen, thoughts_are_dimmed_and_apart_from_the_answer) {
  EXPECT_EQ(shown(ChatScreen(true, true), kThoughtful),
            "\x1b[2mlet me think\x1b[0m\n\nIt **\x1b[0;1mis**\x1b[0m so.\n");
}

TEST(ChatScreen, without_colours_thoughts_are_marked_by_words) {
  EXPECT_EQ(shown(ChatScreen(true, false), kThoughtful), "(thinking)\nlet me think\n(answer)\nIt **is** so.\n");
}

TEST(ChatScreen, a_pipe_gets_the_answer_alone_and_as_it_is) {
  EXPECT_EQ(shown(ChatScreen(false, false), kThoughtful), "It **is** so.\n");
  EXPECT_EQ(shown(ChatScreen(false, false), {ContentDelta{"\x1b[2J"}}), "\x1b[2J\n");
}

TEST(ChatScreen, a_model_cannot_send_escape_sequences) {
  for (const bool has_colours : {true, false}) {
    const std::string text = shown(ChatScreen(true, has_colours), {ContentDelta{"\x1b]0;x\a\x1b[2J"}});
    EXPECT_EQ(text, "␛]0;x␇␛[2J\n");
    EXPECT_EQ(shown(ChatScreen(true, has_colours), {ReasoningDelta{"\x1b[2J"}}).find("\x1b[2J"), std::string::npos);
  }
}

TEST(ChatScreen, long_prompts_show_how_far_they_are_read_and_leave_no_trace) {
  testing::internal::CaptureStdout();
  ChatScreen screen(true, true);
  screen.begin_answer();
  screen.show(PromptProgress{.n_done = 512, .n_total = 2000, .n_cached = 100});
  screen.show(ContentDelta{"yes"});
  screen.end_answer();
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("reading: 412 of 1900 tokens"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\x1b[2Kyes\n"));
}

}  // namespace
}  // namespace zinc
