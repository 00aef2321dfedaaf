// The output of a chat. On a terminal with colors: rendered Markdown, dimmed reasoning, and status lines; without
// colors: Markdown as written. Lines wrap at blanks to the current width of the terminal. On a pipe: only the answers,
// byte for byte; status lines go to standard error. Independent of that, is_interactive says whether a user types. All
// output of models and files to a terminal is sanitized.
#pragma once

#include <string_view>

#include "base/result.h"
#include "cli/chat/markdown_view.h"
#include "engine/request.h"
#include "text/message.h"

namespace zinc {

struct ScreenKind {
  bool is_terminal = false;     // standard output
  bool has_colors = false;      // implies is_terminal
  bool is_interactive = false;  // standard input is a terminal
  int (*width)() = nullptr;     // columns of the terminal at this moment; nullptr or 0: unknown
};

class ChatScreen {
 public:
  explicit ChatScreen(ScreenKind kind) : kind_(kind) {}

  const ScreenKind& kind() const { return kind_; }
  int width() const { return kind_.width ? kind_.width() : 0; }  // columns; 0: unknown
  std::string prompt() const;                                    // styles are enclosed in \1 for libedit

  // The output of a command; continuation lines of wrapped lines are indented.
  void print(std::string_view text, int indent = 0);
  void print_status(std::string_view line);  // figures, only if interactive or on a terminal
  void print_warning(std::string_view line);

  void begin_answer();
  void show(const PromptProgress& progress);
  void show(const Delta& delta);
  void end_answer();
  void show_turn(std::string_view question, std::string_view answer);  // on a terminal only

  const Status& written() const { return written_; }  // the first write error

 private:
  void write(std::string_view text);
  void erase_progress();
  void show_reasoning(std::string_view text);
  void end_reasoning();

  ScreenKind kind_;
  MarkdownView markdown_;
  WordWrap wrap_{0};  // of reasoning, and of answers without colors
  bool has_progress_ = false, thinks_ = false, is_line_open_ = false;
  Status written_ = ok_status();
};

}  // namespace zinc
