// The output of a chat. On a terminal: answers with colors, dimmed reasoning, and status lines. On a pipe: only the
// answers; status lines go to standard error. Independent of that, is_interactive says whether a user types. All output
// of models and files is sanitized.
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
};

class ChatScreen {
 public:
  explicit ChatScreen(ScreenKind kind) : kind_(kind) {}

  const ScreenKind& kind() const { return kind_; }
  std::string prompt() const;  // styles are enclosed in \1 for libedit

  void print(std::string_view text);         // output of a command
  void print_status(std::string_view line);  // figures, only if interactive or on a terminal
  void print_warning(std::string_view line);

  void begin_answer();
  void show(const PromptProgress& progress);
  void show(const Delta& delta);
  void end_answer();

  const Status& written() const { return written_; }  // the first write error

 private:
  void write(std::string_view text);
  void erase_progress();
  void show_reasoning(std::string_view text);
  void end_reasoning();

  ScreenKind kind_;
  MarkdownView markdown_;
  bool has_progress_ = false, thinks_ = false, is_line_open_ = false;
  Status written_ = ok_status();
};

}  // namespace zinc
