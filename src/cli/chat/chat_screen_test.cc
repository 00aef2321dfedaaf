#include "cli/chat/chat_screen.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

constexpr ScreenKind kColored{.is_terminal = true, .has_colors = true, .is_interactive = true};
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

TEST(ChatScreen, reasoning_is_dimmed_and_separated_from_the_answer) {
  EXPECT_EQ(shown(ChatScreen(kColored), kThoughtful), "\x1b[2mlet me think\x1b[0m\n\nIt \x1b[0;1mis\x1b[0m so.\n");
}

TEST(ChatScreen, without_colors_reasoning_is_marked_by_labels) {
  EXPECT_EQ(shown(ChatScreen(kPlain), kThoughtful), "(thinking)\nlet me think\n(answer)\nIt **is** so.\n");
}

TEST(ChatScreen, pipe_gets_only_the_answer_unchanged) {
  EXPECT_EQ(shown(ChatScreen(kPipe), kThoughtful), "It **is** so.\n");
  EXPECT_EQ(shown(ChatScreen(kPipe), {ContentDelta{"\x1b[2J"}}), "\x1b[2J\n");
}

TEST(ChatScreen, model_output_cannot_contain_escape_sequences) {
  for (const ScreenKind& kind : {kColored, kPlain}) {
    const std::string text = shown(ChatScreen(kind), {ContentDelta{"\x1b]0;x\a\x1b[2J"}});
    EXPECT_EQ(text, "␛]0;x␇␛[2J\n");
    EXPECT_EQ(shown(ChatScreen(kind), {ReasoningDelta{"\x1b[2J"}}).find("\x1b[2J"), std::string::npos);
  }
}

int g_width = 0;

TEST(ChatScreen, lines_wrap_at_blanks_to_the_current_width) {
  for (const bool has_colors : {false, true}) {
    g_width = 16;
    ChatScreen screen({.is_terminal = true, .has_colors = has_colors, .width = [] { return g_width; }});
    testing::internal::CaptureStdout();
    screen.begin_answer();
    screen.show(ContentDelta{"the sky is blue today "});
    g_width = 10;  // resized
    screen.show(ContentDelta{"and the sea 是蓝色的"});
    screen.end_answer();
    screen.print("stats of a chat", /*indent=*/2);
    EXPECT_EQ(testing::internal::GetCapturedStdout(),
              "the sky is blue\ntoday and\nthe sea 是\n蓝色的\nstats of a\n  chat\n");
  }
}

TEST(ChatScreen, earlier_turn_is_shown_on_a_terminal_only) {
  const auto turn = [](ChatScreen screen) {
    testing::internal::CaptureStdout();
    screen.show_turn("why?\x1b", "**so**");
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(turn(ChatScreen(kColored)), "\x1b[1m> why?␛\x1b[0m\n\x1b[0;1mso\x1b[0m\n");
  EXPECT_EQ(turn(ChatScreen(kPlain)), "> why?␛\n**so**\n");
  EXPECT_EQ(turn(ChatScreen(kPipe)), "");
}

TEST(ChatScreen, long_prompts_show_progress_that_is_erased) {
  testing::internal::CaptureStdout();
  ChatScreen screen(kColored);
  screen.begin_answer();
  screen.show(PromptProgress{.n_done = 512, .n_total = 2000, .n_cached = 100});
  screen.show(ContentDelta{"yes"});
  screen.end_answer();
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("processing the prompt: 412 of 1900 tokens"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\x1b[2Kyes\n"));
}

TEST(ChatScreen, output_is_sanitized_when_questions_come_from_a_pipe) {
  const ScreenKind questions_piped{.is_terminal = true};
  EXPECT_EQ(shown(ChatScreen(questions_piped), {ContentDelta{"\x1b[2J"}}), "␛[2J\n");
}

std::string noted(ScreenKind kind, void (ChatScreen::*speak)(std::string_view), std::string_view text) {
  testing::internal::CaptureStderr();
  ChatScreen screen(kind);
  (screen.*speak)(text);
  return testing::internal::GetCapturedStderr();
}

TEST(ChatScreen, status_lines_go_to_stderr_sanitized_when_stdout_is_a_pipe) {
  const ScreenKind answers_piped{.is_interactive = true};
  EXPECT_EQ(noted(answers_piped, &ChatScreen::print_status, "4 tokens"), "4 tokens\n");
  EXPECT_EQ(noted(kPipe, &ChatScreen::print_status, "4 tokens"), "");
  testing::internal::CaptureStderr();
  ChatScreen(kPipe).print("\x1b[2J");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "␛[2J\n");
  EXPECT_EQ(noted(kPipe, &ChatScreen::print_warning, "\x1b[2J"), "zinc: \\x1b[2J\n");
}

}  // namespace
}  // namespace zinc
