// Colours for Markdown while it streams. The view only ever adds styles: without them, what comes out is what went in,
// at once, whatever the text is and wherever it was cut. A style never outlives its line, save inside a code fence.
// One per answer; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zinc {

class MarkdownView {
 public:
  std::string push(std::string_view text);  // whole characters, without escape sequences (cli/terminal_text.h)
  std::string finish();                     // back to plain

 private:
  enum class Line : uint8_t { start, indent, heading_mark, heading, list_mark, fence_mark, fence_line, text };

  void take(char c);
  void take_line_start(char c);
  void take_inline(char c);
  void take_run(char next);  // ends a run of * or `, now that it is known what follows
  void end_line();
  bool closes_fence() const;
  void put(char c);
  std::string style() const;

  std::string out_, shown_style_;
  Line line_ = Line::start;
  char mark_ = 0, before_run_ = ' ', last_ = ' ';  // the run under way, if any, and what was before it
  int n_marks_ = 0, n_indent_ = 0;
  int code_ticks_ = 0;  // of the inline code we are in
  bool bold_ = false, italic_ = false, escaped_ = false, is_mark_ = false;
  char fence_ = 0;  // '`' or '~': we are inside a code block, opened by so many:
  int fence_marks_ = 0;
};

}  // namespace zinc
