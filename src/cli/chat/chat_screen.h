// What a chat shows. Where standard output is a terminal: answers with colours, thoughts dimmed, remarks between them.
// Where it is a pipe it has the answers and nothing else, and remarks go to standard error. Whether a person types is
// another question. Nothing a model or a file says can steer a terminal.
#pragma once

#include <string_view>

#include "base/result.h"
#include "cli/chat/markdown_view.h"
#include "engine/request.h"
#include "text/message.h"

namespace zinc {

struct ScreenKind {
  bool is_terminal = false;     // standard output
  bool has_colours = false;     // only a terminal has
  bool is_interactive = false;  // standard input is a terminal: somebody sits there
};

class ChatScreen {
 public:
  explicit ChatScreen(ScreenKind kind) : kind_(kind) {}

  const ScreenKind& kind() const { return kind_; }
  std::string prompt() const;  // what stands before a question; styles in \1, as libedit wants them

  void say(std::string_view text);      // lines somebody asked for
  void whisper(std::string_view line);  // figures, for people only
  void complain(std::string_view line);

  void begin_answer();
  void show(const PromptProgress& progress);
  void show(const Delta& delta);
  void end_answer();

  const Status& written() const { return written_; }  // whether anyone still reads

 private:
  void write(std::string_view text);
  void erase_progress();
  void show_thought(std::string_view text);
  void end_thought();

  ScreenKind kind_;
  MarkdownView markdown_;
  bool has_progress_ = false, thinks_ = false, is_line_open_ = false;
  Status written_ = ok_status();
};

}  // namespace zinc
