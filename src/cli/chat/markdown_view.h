// Renders streamed Markdown for a terminal with colors: headings, emphasis, inline code, lists, quotes, rules and code
// fences are shown by styles instead of their marks; lines wrap at blanks, those of list items with a hanging indent.
// Code is neither wrapped nor indented, so that it can be copied. Text that may begin a span is held until its end is
// known; marks without an end stay text, nothing is lost. Links and tables stay as written. One per answer; one thread.
#pragma once

#include <string>
#include <string_view>

#include "cli/word_wrap.h"

namespace zinc {

class MarkdownView {
 public:
  explicit MarkdownView(int width = 0);  // columns; 0: lines are not wrapped

  // Complete UTF-8 characters, without escape sequences (cli/sanitize_text.h).
  std::string push(std::string_view text);
  std::string finish();  // the held text; resets the style
  void set_width(int width) { wrap_.set_width(width); }

 private:
  struct Style {
    bool bold = false, italic = false, code = false, heading = false, mark = false, dim = false;
    bool operator==(const Style&) const = default;
  };

  void consume(std::string_view character);
  void end_line(bool is_last);
  void begin_text(size_t indent, std::string_view mark, std::string_view rest);  // `rest`: of the line, after its mark
  void read_line_start(bool is_complete);
  void open_fence(size_t indent, std::string_view fence);
  void read_code_start(bool is_complete);
  bool closes_fence(std::string_view line) const;
  void put_spans(bool is_complete);  // of held_
  void put_inline(std::string_view text, Style style, char before);
  void put(std::string_view text, Style style);
  static std::string sequence(const Style& style);

  WordWrap wrap_;
  std::string out_;
  Style shown_, line_style_;
  std::string start_;     // the start of a line whose kind is not known yet
  std::string held_;      // text that may begin a span
  bool in_text_ = false;  // the kind of the line is known
  char before_ = '\n';    // the last byte before held_
  char fence_ = 0;        // '`' or '~': inside a code fence
  size_t n_fence_marks_ = 0, n_fence_indent_ = 0;
};

}  // namespace zinc
