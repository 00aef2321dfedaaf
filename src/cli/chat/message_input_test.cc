#include "cli/chat/message_input.h"

#include <gtest/gtest.h>

#include <deque>

namespace zinc {
namespace {

class ScriptedLines final : public LineSource {
 public:
  explicit ScriptedLines(std::deque<Input> inputs) : inputs_(std::move(inputs)) {}
  Result<Input> read_line(const std::string&) override {
    if (inputs_.empty()) return Input{.kind = InputKind::end};
    Input next = inputs_.front();
    inputs_.pop_front();
    return next;
  }
  void remember(const std::string&) override {}
  size_t n_left() const { return inputs_.size(); }

 private:
  std::deque<Input> inputs_;
};

std::string message_of(std::deque<std::string> lines) {
  std::deque<Input> inputs;
  for (std::string& line : lines) inputs.push_back({.text = std::move(line)});
  ScriptedLines source(std::move(inputs));
  const Input input = read_message(source, "> ").value();
  EXPECT_EQ(source.n_left(), 0u);
  return input.kind == InputKind::text ? input.text : "(none)";
}

TEST(MessageInput, a_line_is_a_message) {
  EXPECT_EQ(message_of({"hello"}), "hello");
  EXPECT_EQ(message_of({""}), "");
}

TEST(MessageInput, a_backslash_at_the_end_goes_on_in_the_next_line) {
  EXPECT_EQ(message_of({"one\\", "two\\", "three"}), "one\ntwo\nthree");
  EXPECT_EQ(message_of({"one\\", "\\", ""}), "one\n\n");
  EXPECT_EQ(message_of({"one\\"}), "one") << "the end cuts it off";
}

TEST(MessageInput, three_quotes_begin_and_end_a_text_of_any_lines) {
  EXPECT_EQ(message_of({"\"\"\"", "a \"quoted\" \\", "/quit", "\"\"\""}), "a \"quoted\" \\\n/quit");
  EXPECT_EQ(message_of({"\"\"\"one", "two\"\"\""}), "one\ntwo");
  EXPECT_EQ(message_of({"\"\"\"one line\"\"\""}), "one line");
  EXPECT_EQ(message_of({"\"\"\"", "never closed"}), "never closed");
}

TEST(MessageInput, quotes_in_the_middle_of_a_line_end_nothing) {
  EXPECT_EQ(message_of({"\"\"\"a\"\"\" and the rest", "of it\"\"\""}), "a\"\"\" and the rest\nof it");
  EXPECT_EQ(message_of({"\"\"\"\"", "x\"\"\""}), "\"\nx") << "four quotes are not an end yet";
}

TEST(MessageInput, what_was_pasted_is_taken_as_it_is) {
  const std::string texts[] = {"// comment\nint x;", "/usr/bin/env: not found\n", "#!/bin/sh\necho \\",
                               "\"\"\"Doc.\"\"\"\nimport x"};
  for (const std::string& text : texts) {
    ScriptedLines lines({{.text = text, .is_quoted = true}});
    const Input input = read_message(lines, "> ").value();
    EXPECT_EQ(input.text, text);
    EXPECT_TRUE(input.is_quoted);
  }
  EXPECT_EQ(message_of({"explain this:\necho \\"}), "explain this:\necho \\") << "pasted behind what was typed";
}

TEST(MessageInput, what_is_brought_back_from_the_history_is_the_same_message) {
  const Input messages[] = {{.text = "plain"},
                            {.text = "/stats"},
                            {.text = "two\nlines"},
                            {.text = "/three\nfour", .is_quoted = true},
                            {.text = "// comment\nint x;", .is_quoted = true},
                            {.text = "\"\"\"Doc.\"\"\"\nimport x", .is_quoted = true},
                            {.text = "echo \\", .is_quoted = true}};
  for (const Input& message : messages) {
    ScriptedLines lines({{.text = as_typed(message)}});
    const Input again = read_message(lines, "> ").value();
    EXPECT_EQ(again.text, message.text);
    EXPECT_EQ(again.is_quoted && message.text.starts_with('/'), message.is_quoted && message.text.starts_with('/'));
  }
}

TEST(MessageInput, what_is_quoted_is_marked_so) {
  ScriptedLines lines({{.text = "\"\"\"/quit\"\"\""}, {.text = "/quit"}});
  EXPECT_TRUE(read_message(lines, "> ").value().is_quoted);
  EXPECT_FALSE(read_message(lines, "> ").value().is_quoted);
}

TEST(MessageInput, an_interrupt_drops_what_was_begun) {
  ScriptedLines lines({{.text = "one\\"}, {.kind = InputKind::interrupted}, {.text = "two"}});
  EXPECT_EQ(read_message(lines, "> ").value().kind, InputKind::interrupted);
  EXPECT_EQ(read_message(lines, "> ").value().text, "two");
  EXPECT_EQ(read_message(lines, "> ").value().kind, InputKind::end);
}

}  // namespace
}  // namespace zinc
