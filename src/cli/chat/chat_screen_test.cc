#include "cli/chat/chat_screen.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

constexpr ScreenKind kColoured{.is_terminal = true, .has_colours = true, .is_interactive = true};
constexpr ScreenKind kPlain{.is_terminal = true, .is_interactive = true};
constexpr ScreenKind kPipe{};

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
  EXPECT_EQ(shown(ChatScreen(kColoured), kThoughtful), "\x1b[2mlet me think\x1b[0m\n\nIt **\x1b[0;1mis**\x1b[0m so.\n");
}

TEST(ChatScreen, without_colours_thoughts_are_marked_by_words) {
  EXPECT_EQ(shown(ChatScreen(kPlain), kThoughtful), "(thinking)\nlet me think\n(answer)\nIt **is** so.\n");
}

TEST(ChatScreen, a_pipe_gets_the_answer_alone_and_as_it_is) {
  EXPECT_EQ(shown(ChatScreen(kPipe), kThoughtful), "It **is** so.\n");
  EXPECT_EQ(shown(ChatScreen(kPipe), {ContentDelta{"\x1b[2J"}}), "\x1b[2J\n");
}

TEST(ChatScreen, a_model_cannot_send_escape_sequences) {
  for (const ScreenKind& kind : {kColoured, kPlain}) {
    const std::string text = shown(ChatScreen(kind), {ContentDelta{"\x1b]0;x\a\x1b[2J"}});
    EXPECT_EQ(text, "␛]0;x␇␛[2J\n");
    EXPECT_EQ(shown(ChatScreen(kind), {ReasoningDelta{"\x1b[2J"}}).find("\x1b[2J"), std::string::npos);
  }
}

TEST(ChatScreen, long_prompts_show_how_far_they_are_read_and_leave_no_trace) {
  testing::internal::CaptureStdout();
  ChatScreen screen(kColoured);
  screen.begin_answer();
  screen.show(PromptProgress{.n_done = 512, .n_total = 2000, .n_cached = 100});
  screen.show(ContentDelta{"yes"});
  screen.end_answer();
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("reading: 412 of 1900 tokens"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\x1b[2Kyes\n"));
}

TEST(ChatScreen, questions_from_a_pipe_do_not_make_the_terminal_less_safe) {
  const ScreenKind questions_piped{.is_terminal = true};
  EXPECT_EQ(shown(ChatScreen(questions_piped), {ContentDelta{"\x1b[2J"}}), "␛[2J\n");
}

std::string noted(ScreenKind kind, void (ChatScreen::*speak)(std::string_view), std::string_view text) {
  testing::internal::CaptureStderr();
  ChatScreen screen(kind);
  (screen.*speak)(text);
  return testing::internal::GetCapturedStderr();
}

TEST(ChatScreen, remarks_beside_a_pipe_reach_whoever_sits_there_and_steer_nothing) {
  const ScreenKind answers_piped{.is_interactive = true};
  EXPECT_EQ(noted(answers_piped, &ChatScreen::whisper, "4 tokens"), "4 tokens\n");
  EXPECT_EQ(noted(kPipe, &ChatScreen::whisper, "4 tokens"), "");
  EXPECT_EQ(noted(kPipe, &ChatScreen::say, "\x1b[2J"), "␛[2J\n");
  EXPECT_EQ(noted(kPipe, &ChatScreen::complain, "\x1b[2J"), "zinc: \\x1b[2J\n");
}

}  // namespace
}  // namespace zinc
