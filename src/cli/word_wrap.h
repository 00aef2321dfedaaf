// Wraps text at blanks to the width of a terminal, also while it streams: a word is held until its end is known, so the
// output is at most one word behind. A word wider than the line is cut by the terminal. Code fences are not wrapped: a
// newline would change the code. Wide characters (Chinese, Japanese, Korean) may be separated anywhere. One per answer;
// one thread.
#pragma once

#include <string>
#include <string_view>

namespace zinc {

class WordWrap {
 public:
  // `width` 0: no wrapping. `indent`: blanks at the start of each continuation line.
  explicit WordWrap(int width, int indent = 0) : width_(width), indent_(indent) {}

  // Complete UTF-8 characters; the only control characters are newlines, tabs and SGR sequences (ESC [ ... m).
  std::string push(std::string_view text);
  std::string finish();  // the held word and blanks

  void set_width(int width);    // of a resized terminal, from the next word on
  void set_indent(int indent);  // at most half of the width
  // Stops or resumes wrapping; the caller then handles code fences. Call at the start of a line.
  void set_verbatim(bool is_verbatim);

 private:
  void consume(std::string_view character, char32_t code);
  void put_visible(std::string_view character, char32_t code);
  void put_word();  // the held word, on a new line if it does not fit
  void put_blanks();
  void end_line();
  void track_fence(char32_t code);

  int width_, indent_;
  int column_ = 0;  // after the written text
  std::string out_, word_, blanks_;
  int n_word_columns_ = 0, n_blank_columns_ = 0;
  bool in_sequence_ = false;   // inside an SGR sequence
  bool at_line_start_ = true;  // only blanks and fence marks so far
  int n_fence_marks_ = 0;      // leading ` or ~ of this line
  bool in_fence_ = false, tracks_fences_ = true;
};

// `text` wrapped to `width` columns, its lines separately; continuation lines are indented by `indent` blanks.
std::string wrap_words(std::string_view text, int width, int indent = 0);

}  // namespace zinc
