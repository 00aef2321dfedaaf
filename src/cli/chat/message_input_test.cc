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
  void add_to_history(const std::string&) override {}
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

TEST(MessageInput, one_line_is_one_message) {
  EXPECT_EQ(message_of({"hello"}), "hello");
  EXPECT_EQ(message_of({""}), "");
}

TEST(MessageInput, trailing_backslash_continues_the_line) {
  EXPECT_EQ(message_of({"one\\", "two\\", "three"}), "one\ntwo\nthree");
  EXPECT_EQ(message_of({"one\\", "\\", ""}), "one\n\n");
  EXPECT_EQ(message_of({"one\\"}), "one") << "the end cuts it off";
}

TEST(MessageInput, triple_quotes_enclose_a_multi_line_message) {
  EXPECT_EQ(message_of({"\"\"\"", "a \"quoted\" \\", "/quit", "\"\"\""}), "a \"quoted\" \\\n/quit");
  EXPECT_EQ(message_of({"\"\"\"one", "two\"\"\""}), "one\ntwo");
  EXPECT_EQ(message_of({"\"\"\"one line\"\"\""}), "one line");
  EXPECT_EQ(message_of({"\"\"\"", "never closed"}), "never closed");
}

TEST(MessageInput, triple_quotes_inside_a_line_do_not_close) {
  EXPECT_EQ(message_of({"\"\"\"a\"\"\" and the rest", "of it\"\"\""}), "a\"\"\" and the rest\nof it");
  EXPECT_EQ(message_of({"\"\"\"\"", "x\"\"\""}), "\"\nx") << "four quotes are not an end yet";
}

TEST(MessageInput, pasted_text_is_taken_verbatim) {
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

TEST(MessageInput, message_from_history_is_unchanged) {
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

TEST(MessageInput, quoted_message_is_flagged) {
  ScriptedLines lines({{.text = "\"\"\"/quit\"\"\""}, {.text = "/quit"}});
  EXPECT_TRUE(read_message(lines, "> ").value().is_quoted);
  EXPECT_FALSE(read_message(lines, "> ").value().is_quoted);
}

TEST(MessageInput, interrupt_drops_the_incomplete_message) {
  ScriptedLines lines({{.text = "one\\"}, {.kind = InputKind::interrupted}, {.text = "two"}});
  const Input dropped = read_message(lines, "> ").value();
  EXPECT_EQ(dropped.kind, InputKind::interrupted);
  EXPECT_FALSE(dropped.text.empty()) << "a Ctrl-C that drops text does not end the chat";
  EXPECT_EQ(read_message(lines, "> ").value().text, "two");
  EXPECT_EQ(read_message(lines, "> ").value().kind, InputKind::end);
}

}  // namespace
}  // namespace zinc
