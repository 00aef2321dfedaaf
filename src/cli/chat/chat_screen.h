// What a chat shows. On a terminal: answers with colours, thoughts dimmed, remarks between them. In a pipe: standard
// output has the answers and nothing else, remarks go to standard error. Nothing a model wrote can steer the terminal.
#pragma once

#include <string_view>

#include "base/result.h"
#include "cli/chat/markdown_view.h"
#include "engine/request.h"
#include "text/message.h"

namespace zinc {

class ChatScreen {
 public:
  ChatScreen(bool is_terminal, bool has_colours) : is_terminal_(is_terminal), has_colours_(has_colours) {}

  bool is_terminal() const { return is_terminal_; }
  std::string prompt() const;  // what stands before a question; styles in \1, as libedit wants them

  void say(std::string_view text);      // lines somebody asked for
  void whisper(std::string_view line);  // figures; on a terminal only
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

  bool is_terminal_, has_colours_;
  MarkdownView markdown_;
  bool has_progress_ = false, thinks_ = false, is_line_open_ = false;
  Status written_ = ok_status();
};

}  // namespace zinc
