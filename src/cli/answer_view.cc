#include "cli/answer_view.h"

#include "cli/output.h"
#include "cli/sanitize_text.h"

namespace zinc {
namespace {

constexpr std::string_view kDimStyle = "\x1b[2m", kPlainStyle = "\x1b[0m";

}  // namespace

void AnswerView::write(std::string_view text) {
  if (!written_.ok() || text.empty()) return;
  written_ = write_output(text);
  is_line_open_ = text.back() != '\n';
}

void AnswerView::write_wrapped(std::string_view text) { write(wrap_.push(sanitize_text(text))); }

void AnswerView::show_reasoning(std::string_view text) {
  const bool is_first = !has_reasoning_;
  has_reasoning_ = true;
  if (options_.collects) reasoning_ += text;
  if (options_.collects || !options_.is_terminal) return;
  if (is_first) write(options_.has_colors ? kDimStyle : "(thinking)\n");
  write_wrapped(text);
}

void AnswerView::end_reasoning() {
  if (!is_reasoning() || options_.collects || !options_.is_terminal) return;
  write(wrap_.finish());
  const bool needs_line = is_line_open_;
  if (options_.has_colors) write(kPlainStyle);
  if (needs_line) write("\n");
  write(options_.has_colors ? "\n" : "(answer)\n");
  wrap_ = WordWrap(options_.width);
}

void AnswerView::show_answer(std::string_view text) {
  end_reasoning();
  has_answer_ = true;
  if (options_.collects) {
    answer_ += text;
  } else if (options_.is_terminal) {
    write_wrapped(text);
  } else {
    write(text);
  }
}

void AnswerView::show(const Delta& delta) {
  if (const auto* reasoning = std::get_if<ReasoningDelta>(&delta)) {
    show_reasoning(reasoning->text);
  } else if (const auto* content = std::get_if<ContentDelta>(&delta)) {
    show_answer(content->text);
  }
}

void AnswerView::end() {
  if (options_.collects) return;
  if (options_.is_terminal) write(wrap_.finish());
  if (options_.is_terminal && options_.has_colors && is_reasoning()) write(kPlainStyle);
  write("\n");
}

}  // namespace zinc
