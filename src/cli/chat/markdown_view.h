// Colors streamed Markdown. Only inserts style sequences: without them the output equals the input, immediately, for
// any text and any split into pieces. A style ends with its line, except inside a code fence. One per answer; one
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zinc {

class MarkdownView {
 public:
  std::string push(std::string_view text);  // complete UTF-8 characters, without escape sequences (cli/sanitize_text.h)
  std::string finish();                     // resets the style

 private:
  enum class Line : uint8_t { start, indent, heading_mark, heading, list_mark, fence_mark, fence_line, text };

  void consume(char c);
  void consume_line_start(char c);
  void consume_inline(char c);
  void end_marker_run(char next);  // ends a run of * or `; `next` decides its meaning
  void end_line();
  bool closes_fence() const;
  void put(char c);
  std::string style() const;

  std::string out_, shown_style_;
  Line line_ = Line::start;
  char mark_ = 0, before_run_ = ' ', last_ = ' ';  // the current run, and the character before it
  int n_marks_ = 0, n_indent_ = 0;
  int code_ticks_ = 0;  // length of the run that opened the current inline code
  bool bold_ = false, italic_ = false, escaped_ = false, is_mark_ = false;
  char fence_ = 0;  // '`' or '~': inside a code block, opened by fence_marks_ of them
  int fence_marks_ = 0;
};

}  // namespace zinc
