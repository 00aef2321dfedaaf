#include "cli/chat/markdown_view.h"

namespace zinc {
namespace {

constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kHeading = "\x1b[0;1;36m";
constexpr std::string_view kMark = "\x1b[0;36m";  // of lists and quotes
constexpr std::string_view kCode = "\x1b[0;33m";
constexpr std::string_view kFenceLine = "\x1b[0;2m";
constexpr int kMinFence = 3, kMaxHeading = 6;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
// Letters of other scripts count: their bytes are above 127.
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) > 127;
}
bool is_inside_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::string MarkdownView::style() const {
  if (line_ == Line::fence_line || (line_ == Line::fence_mark && n_marks_ >= kMinFence)) return std::string(kFenceLine);
  if (fence_ != 0 || code_ticks_ > 0) return std::string(kCode);
  if (line_ == Line::heading || line_ == Line::heading_mark) return std::string(kHeading);
  if (is_mark_) return std::string(kMark);
  if (!bold_ && !italic_) return "";
  return std::string("\x1b[0") + (bold_ ? ";1" : "") + (italic_ ? ";3" : "") + "m";
}

// A style changes between characters, never inside one.
void MarkdownView::put(char c) {
  const std::string wanted = style();
  if (wanted != shown_style_ && !is_inside_character(c)) {
    out_ += wanted.empty() ? std::string(kReset) : wanted;
    shown_style_ = wanted;
  }
  out_ += c;
  last_ = c;
}

bool MarkdownView::closes_fence() const { return fence_ != 0 && mark_ == fence_ && n_marks_ >= fence_marks_; }

void MarkdownView::end_line() {
  end_marker_run('\n');
  if (line_ == Line::fence_mark || line_ == Line::fence_line) {
    if (fence_ == 0 && n_marks_ >= kMinFence) {
      fence_ = mark_;
      fence_marks_ = n_marks_;
    } else if (line_ == Line::fence_mark && closes_fence()) {
      fence_ = 0;
    }
  }
  const char fence = fence_;
  bold_ = italic_ = escaped_ = is_mark_ = false;
  code_ticks_ = n_marks_ = n_indent_ = 0;
  mark_ = 0;
  line_ = Line::start;
  // Reset before the newline: else some terminals fill the rest of the line.
  if (!shown_style_.empty()) out_ += kReset;
  shown_style_.clear();
  fence_ = fence;
  out_ += '\n';
  last_ = '\n';
}

// The start of a line decides its kind. Continues with consume_inline() as soon as the kind is known.
void MarkdownView::consume_line_start(char c) {
  switch (line_) {
    case Line::start:
    case Line::indent:
      if (c == ' ' || c == '\t') {
        line_ = Line::indent;
        ++n_indent_;
        return put(c);
      }
      if (c == '`' || c == '~') {  // at any indentation: models indent fences in lists
        line_ = Line::fence_mark;
        mark_ = c;
        n_marks_ = 1;
        before_run_ = ' ';
        return put(c);
      }
      if (fence_ == 0 && c == '#') {
        line_ = Line::heading_mark;
        n_marks_ = 1;
        return put(c);
      }
      if (fence_ == 0 && (c == '-' || c == '+' || c == '>')) {
        line_ = Line::list_mark;
        is_mark_ = true;
        return put(c);
      }
      if (fence_ == 0 && c == '*') {  // a list or a style: the next character decides, but this one is shown at once
        line_ = Line::text;
        is_mark_ = true;
        return consume_inline(c);
      }
      break;
    case Line::fence_mark:
      if (c == mark_) {
        ++n_marks_;
        return put(c);
      }
      if (n_marks_ >= kMinFence && fence_ == 0) {
        line_ = Line::fence_line;
        return put(c);
      }
      if (closes_fence() && is_blank(c)) return put(c);  // blanks may follow the fence
      line_ = Line::text;
      if (fence_ != 0 || mark_ == '~') mark_ = 0, n_marks_ = 0;  // else it opens inline code
      return consume_inline(c);
    case Line::heading_mark:
      if (c == '#' && n_marks_ < kMaxHeading) {
        ++n_marks_;
        return put(c);
      }
      n_marks_ = 0;
      line_ = c == ' ' ? Line::heading : Line::text;
      return consume_inline(c);
    default:
      break;
  }
  is_mark_ = false;
  line_ = Line::text;
  consume_inline(c);
}

// The next character decides whether a run of stars opens or closes; for backticks the length of the run decides.
void MarkdownView::end_marker_run(char next) {
  if (n_marks_ == 0 || (mark_ != '*' && mark_ != '`') || line_ == Line::fence_mark || line_ == Line::fence_line) return;
  const bool can_open = !is_blank(next), can_close = !is_blank(before_run_);
  if (mark_ == '`') {
    code_ticks_ = code_ticks_ == 0 ? n_marks_ : code_ticks_ == n_marks_ ? 0 : code_ticks_;
  } else {
    if (n_marks_ == 1 || n_marks_ == 3) italic_ = italic_ ? !can_close : can_open;
    if (n_marks_ == 2 || n_marks_ == 3) bold_ = bold_ ? !can_close : can_open;
  }
  mark_ = 0;
  n_marks_ = 0;
  is_mark_ = false;
}

void MarkdownView::consume_inline(char c) {
  if (fence_ != 0 || line_ == Line::fence_line) return put(c);
  if (mark_ != 0 && c != mark_) end_marker_run(c);
  if (escaped_) {
    escaped_ = false;
    return put(c);
  }
  if (c == '`' || (c == '*' && code_ticks_ == 0)) {
    if (n_marks_ == 0) before_run_ = last_;
    mark_ = c;
    ++n_marks_;
    return put(c);
  }
  if (code_ticks_ == 0 && c == '\\') escaped_ = true;
  if (code_ticks_ == 0 && c == '_' && (italic_ ? !is_blank(last_) : !is_word(last_) && last_ != '_')) {
    if (italic_) {
      put(c);
      italic_ = false;
      return;
    }
    italic_ = true;
  }
  put(c);
}

void MarkdownView::consume(char c) {
  if (c == '\n') return end_line();
  const bool is_inline = line_ == Line::text || line_ == Line::heading || line_ == Line::fence_line;
  is_inline ? consume_inline(c) : consume_line_start(c);
}

std::string MarkdownView::push(std::string_view text) {
  out_.clear();
  for (const char c : text) consume(c);
  return std::move(out_);
}

std::string MarkdownView::finish() { return shown_style_.empty() ? "" : std::string(kReset); }

}  // namespace zinc
