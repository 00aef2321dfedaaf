#include "cli/word_wrap.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "cli/display_width.h"

namespace zinc {
namespace {

constexpr int kTabColumns = 8, kFenceMarks = 3;

}  // namespace

// A line that begins with ``` or ~~~ opens or closes a code fence; ```code``` is inline code.
void WordWrap::track_fence(char32_t code) {
  if (!at_line_start_ && code == '`') n_fence_marks_ = 0;
  if (!at_line_start_ || code == ' ' || code == '\t') return;
  const bool is_mark = code == '`' || code == '~';
  n_fence_marks_ += is_mark;
  at_line_start_ = is_mark;
}

void WordWrap::put_blanks() {
  out_ += blanks_;
  column_ += n_blank_columns_;
  blanks_.clear();
  n_blank_columns_ = 0;
}

void WordWrap::put_word() {
  const bool is_verbatim = in_fence_ || width_ <= 0;
  if (n_word_columns_ > 0 && !is_verbatim && column_ > indent_ &&
      column_ + n_blank_columns_ + n_word_columns_ > width_) {
    out_ += '\n';
    out_.append(static_cast<size_t>(indent_), ' ');
    column_ = indent_;
    blanks_.clear();
    n_blank_columns_ = 0;
  }
  if (n_word_columns_ > 0) put_blanks();
  out_ += word_;
  column_ += n_word_columns_;
  word_.clear();
  n_word_columns_ = 0;
}

void WordWrap::end_line() {
  put_word();
  if (column_ + n_blank_columns_ <= width_) put_blanks();  // else the terminal would show an empty line
  if (tracks_fences_ && n_fence_marks_ >= kFenceMarks) in_fence_ = !in_fence_;
  out_ += '\n';
  blanks_.clear();
  column_ = n_blank_columns_ = n_fence_marks_ = 0;
  at_line_start_ = true;
}

void WordWrap::put_visible(std::string_view character, char32_t code) {
  const int n_columns = display_width(code);
  const bool is_wide = n_columns > 1;
  if (is_wide) put_word();
  word_ += character;
  n_word_columns_ += n_columns;
  const bool is_cut = width_ > 0 && n_word_columns_ >= width_;  // the terminal continues it on the next line
  if (is_wide || is_cut || in_fence_ || width_ <= 0) put_word();
  if (is_cut) column_ -= width_;
}

void WordWrap::consume(std::string_view character, char32_t code) {
  if (in_sequence_ || code == 0x1B) {
    word_ += character;
    in_sequence_ = code != 'm';
    return;
  }
  if (code == '\n') return end_line();
  track_fence(code);
  if (code == ' ' || code == '\t') {
    put_word();
    const int column = column_ + n_blank_columns_;
    blanks_ += character;
    n_blank_columns_ += code == ' ' ? 1 : kTabColumns - column % kTabColumns;
    if (in_fence_ || width_ <= 0) put_blanks();
    return;
  }
  put_visible(character, code);
}

// The terminal has wrapped the current line to its new width.
void WordWrap::set_width(int width) {
  if (width == width_) return;
  width_ = width;
  if (width_ > 0 && column_ > width_) column_ = (column_ - 1) % width_ + 1;
}

void WordWrap::set_indent(int indent) { indent_ = width_ > 0 ? std::min(indent, width_ / 2) : indent; }

void WordWrap::set_verbatim(bool is_verbatim) {
  tracks_fences_ = false;
  in_fence_ = is_verbatim;
}

std::string WordWrap::push(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = next_utf8(text);
    consume(text.substr(0, static_cast<size_t>(c.n_bytes)), c.code);
    text.remove_prefix(static_cast<size_t>(c.n_bytes));
  }
  return std::exchange(out_, {});
}

std::string WordWrap::finish() {
  put_word();
  if (column_ + n_blank_columns_ <= width_) put_blanks();
  return std::exchange(out_, {});
}

std::string wrap_words(std::string_view text, int width, int indent) {
  WordWrap wrap(width, indent);
  std::string out = wrap.push(text);
  return out + wrap.finish();
}

}  // namespace zinc
