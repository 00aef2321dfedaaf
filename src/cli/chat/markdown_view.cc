#include "cli/chat/markdown_view.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "cli/chat/markdown_span.h"

namespace zinc {
namespace {

constexpr std::string_view kBullet = "•", kQuoteBar = "│", kRule = "────────────────────";
constexpr size_t kMinFence = 3, kMinRule = 3, kMaxHeading = 6, kMaxDigits = 9;
constexpr size_t kMaxHeld = 500;  // bytes; then the marks are text: an unclosed mark must not stop the stream

size_t count_of(std::string_view text, char c) { return std::min(text.find_first_not_of(c), text.size()); }
std::string_view without_blanks(std::string_view text) { return text.substr(count_of(text, ' ')); }

// "12. " or "3) ": the length of the number with its mark; 0: not a list item.
size_t number_length(std::string_view line) {
  const size_t n = std::min(line.find_first_not_of("0123456789"), line.size());
  const bool has_mark = n > 0 && n <= kMaxDigits && n + 1 < line.size() && (line[n] == '.' || line[n] == ')');
  return has_mark && line[n + 1] == ' ' ? n + 1 : 0;
}

// Whether more characters may still make this start of a line a heading, a list item, a rule or a fence.
bool may_be_mark(std::string_view line) {
  const size_t n_same = count_of(line, line[0]);
  switch (line[0]) {
    case '>':
      return line.size() == 1;
    case '#':
    case '_':
    case '-':
    case '+':
    case '*':
      return n_same == line.size();
    case '`':
      return n_same == line.size() || (n_same >= kMinFence && line.find('`', n_same) == std::string_view::npos);
    case '~':
      return n_same == line.size() || n_same >= kMinFence;
    default: {
      const size_t n = std::min(line.find_first_not_of("0123456789"), line.size());
      const bool has_mark = n < line.size() && (line[n] == '.' || line[n] == ')');
      return n > 0 && n <= kMaxDigits && (n == line.size() || (has_mark && n + 1 == line.size()));
    }
  }
}

bool is_fence(std::string_view line) {
  const size_t n = count_of(line, line[0]);
  if (line[0] == '~') return n >= kMinFence;
  return line[0] == '`' && n >= kMinFence && line.find('`', n) == std::string_view::npos;
}

bool is_rule(std::string_view line) {
  const bool has_mark = line[0] == '-' || line[0] == '*' || line[0] == '_';
  return has_mark && count_of(line, line[0]) >= kMinRule &&
         without_blanks(line.substr(count_of(line, line[0]))).empty();
}

}  // namespace

MarkdownView::MarkdownView(int width) : wrap_(width) { wrap_.set_verbatim(false); }

std::string MarkdownView::sequence(const Style& style) {
  if (style.code) return "\x1b[0;33m";
  if (style.mark) return "\x1b[0;36m";
  if (style.dim) return "\x1b[0;2m";
  std::string text = "\x1b[0";
  if (style.bold || style.heading) text += ";1";
  if (style.italic) text += ";3";
  if (style.heading) text += ";36";
  return text + "m";
}

void MarkdownView::put(std::string_view text, Style style) {
  if (text.empty()) return;
  if (style != shown_) out_ += wrap_.push(sequence(style));
  shown_ = style;
  out_ += wrap_.push(text);
}

void MarkdownView::put_inline(std::string_view text, Style style, char before) {
  while (!text.empty()) {
    const MarkdownSpan span = first_markdown_span(text, before, /*is_complete=*/true);
    using Kind = MarkdownSpan::Kind;
    Style inner = style;
    inner.code = span.kind == Kind::code;
    inner.bold = style.bold || span.kind == Kind::bold || span.kind == Kind::bold_italic;
    inner.italic = style.italic || span.kind == Kind::italic || span.kind == Kind::bold_italic;
    const bool is_leaf = span.kind == Kind::text || span.kind == Kind::code;
    is_leaf ? put(span.text, inner) : put_inline(span.text, inner, ' ');
    before = text[span.n_bytes - 1];
    text.remove_prefix(span.n_bytes);
  }
}

void MarkdownView::put_spans(bool is_complete) {
  size_t n_done = 0;
  while (n_done < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(n_done);
    const MarkdownSpan span = first_markdown_span(rest, before_, is_complete || rest.size() > kMaxHeld);
    if (span.kind == MarkdownSpan::Kind::incomplete) break;
    put_inline(rest.substr(0, span.n_bytes), line_style_, before_);
    before_ = rest[span.n_bytes - 1];
    n_done += span.n_bytes;
  }
  held_.erase(0, n_done);
}

void MarkdownView::begin_text(size_t indent, std::string_view mark, std::string_view rest) {
  const std::string line(rest);  // `rest` is part of start_
  put(std::string(indent, ' '), {});
  put(mark, {.mark = true});
  if (!mark.empty()) put(" ", {});
  // The mark is written before the indent of the lines after it is set.
  const size_t n_mark = mark.empty() ? 0 : (mark == kBullet || mark == kQuoteBar ? 1 : mark.size()) + 1;
  wrap_.set_indent(static_cast<int>(indent + n_mark));
  start_.clear();
  in_text_ = true;
  before_ = ' ';
  held_ = line;
  put_spans(/*is_complete=*/false);
}

// The start of a line decides its kind.
void MarkdownView::read_line_start(bool is_complete) {
  const size_t indent = count_of(start_, ' ');
  const std::string_view line = std::string_view(start_).substr(indent);
  if (line.empty()) return;
  if (!is_complete && start_.size() <= kMaxHeld && may_be_mark(line)) return;
  const size_t n_same = count_of(line, line[0]);
  if (is_complete && is_fence(line)) return open_fence(indent, line);
  if (is_complete && is_rule(line)) {
    put(std::string(indent, ' '), {});
    put(kRule, {.dim = true});
    start_.clear();
    in_text_ = true;
    return;
  }
  if (line[0] == '#' && n_same <= kMaxHeading && n_same < line.size() && line[n_same] == ' ') {
    line_style_.heading = true;
    return begin_text(indent, "", without_blanks(line.substr(n_same)));
  }
  const bool is_item = (line[0] == '-' || line[0] == '+' || line[0] == '*') && line.size() > 1 && line[1] == ' ';
  if (is_item) return begin_text(indent, kBullet, without_blanks(line.substr(1)));
  if (line[0] == '>') return begin_text(indent, kQuoteBar, without_blanks(line.substr(1)));
  const size_t n_number = number_length(line);
  if (n_number > 0)
    return begin_text(indent, std::string(line.substr(0, n_number)), without_blanks(line.substr(n_number)));
  begin_text(indent, "", line);
}

void MarkdownView::open_fence(size_t indent, std::string_view fence) {
  fence_ = fence[0];
  n_fence_marks_ = count_of(fence, fence_);
  n_fence_indent_ = indent;
  const std::string_view info = without_blanks(fence.substr(n_fence_marks_));
  const std::string language(info.substr(0, info.find(' ')));
  wrap_.set_verbatim(true);
  put(language, {.dim = true});
  start_.clear();
  in_text_ = !language.empty();
}

bool MarkdownView::closes_fence(std::string_view line) const {
  const std::string_view marks = without_blanks(line);
  const size_t n = count_of(marks, fence_);
  return n >= n_fence_marks_ && without_blanks(marks.substr(n)).empty();
}

// A line of code is held while it may be the closing fence.
void MarkdownView::read_code_start(bool is_complete) {
  const std::string_view marks = without_blanks(start_);
  const bool may_close = without_blanks(marks.substr(count_of(marks, fence_))).empty();
  if (!is_complete && may_close && start_.size() <= kMaxHeld) return;
  put(std::string_view(start_).substr(std::min(count_of(start_, ' '), n_fence_indent_)), {.code = true});
  start_.clear();
  in_text_ = true;
}

void MarkdownView::end_line(bool is_last) {
  const bool was_fence = fence_ != 0;
  bool is_hidden = false;  // a line of fence marks
  if (was_fence && !in_text_ && closes_fence(start_)) {
    fence_ = 0;
    start_.clear();
    wrap_.set_verbatim(false);
    is_hidden = true;
  } else if (was_fence && !in_text_) {
    read_code_start(/*is_complete=*/true);
  } else if (!was_fence) {
    if (!in_text_) read_line_start(/*is_complete=*/true);
    put_spans(/*is_complete=*/true);
    is_hidden = fence_ != 0 && !in_text_;
  }
  if (shown_ != Style{}) out_ += wrap_.push(sequence({}));  // before the newline: else some terminals fill the line
  shown_ = line_style_ = {};
  if (!is_last && !is_hidden) out_ += wrap_.push("\n");
  wrap_.set_indent(0);
  start_.clear();
  in_text_ = false;
  before_ = '\n';
}

void MarkdownView::consume(std::string_view character) {
  if (character == "\n") return end_line(/*is_last=*/false);
  if (in_text_ && fence_ != 0) return put(character, {.code = true});
  if (in_text_) {
    held_ += character;
    return put_spans(/*is_complete=*/false);
  }
  start_ += character == "\t" && fence_ == 0 ? "    " : character;
  fence_ != 0 ? read_code_start(/*is_complete=*/false) : read_line_start(/*is_complete=*/false);
}

std::string MarkdownView::push(std::string_view text) {
  while (!text.empty()) {
    const auto n_bytes = static_cast<size_t>(next_utf8(text).n_bytes);
    consume(text.substr(0, n_bytes));
    text.remove_prefix(n_bytes);
  }
  return std::exchange(out_, {});
}

std::string MarkdownView::finish() {
  end_line(/*is_last=*/true);
  out_ += wrap_.finish();
  return std::exchange(out_, {});
}

}  // namespace zinc
