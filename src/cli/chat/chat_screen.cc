#include "cli/chat/chat_screen.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "cli/sanitize_text.h"

namespace zinc {
namespace {

constexpr std::string_view kDim = "\x1b[2m", kBold = "\x1b[1m", kRed = "\x1b[31m", kPlain = "\x1b[0m",
                           kEraseLine = "\r\x1b[2K";
constexpr int kLongPrompt = 512;  // tokens; shorter prompts are read too fast to show progress

// Whether the cursor is not at the start of a line after `text`; style sequences do not move it.
bool leaves_line_open(std::string_view text, bool was_open) {
  while (!text.empty()) {
    const bool is_sequence = text.starts_with("\x1b[");
    const size_t n_bytes = is_sequence ? std::min(text.find('m'), text.size() - 1) + 1 : 1;
    if (!is_sequence) was_open = text.front() != '\n';
    text.remove_prefix(n_bytes);
  }
  return was_open;
}

}  // namespace

std::string ChatScreen::prompt() const { return kind_.has_colors ? "\1\x1b[1;32m\1>\1\x1b[0m\1 " : "> "; }

void ChatScreen::write(std::string_view text) {
  if (!written_.ok() || text.empty()) return;
  written_ = write_output(text);
  is_line_open_ = leaves_line_open(text, is_line_open_);
}

void ChatScreen::print(std::string_view text, int indent) {
  if (!kind_.is_terminal) return print_stderr(sanitize_text(text));
  write(wrap_words(sanitize_text(text), width(), indent) + "\n");
}

void ChatScreen::print_status(std::string_view line) {
  const std::string text = wrap_words(sanitize_line(line), kind_.is_terminal ? width() : 0);
  if (!kind_.is_terminal) return kind_.is_interactive ? print_stderr(text) : void();
  write(kind_.has_colors ? fmt::format("{}{}{}\n", kDim, text, kPlain) : text + "\n");
}

void ChatScreen::print_warning(std::string_view line) {
  const std::string text = wrap_words(sanitize_line(line), kind_.is_terminal ? width() : 0);
  if (!kind_.is_terminal) return print_stderr("zinc: " + text);
  write(kind_.has_colors ? fmt::format("{}{}{}\n", kRed, text, kPlain) : text + "\n");
}

void ChatScreen::begin_answer() {
  markdown_ = MarkdownView(width());
  wrap_ = WordWrap(width());
  thinks_ = has_progress_ = is_line_open_ = false;
}

void ChatScreen::erase_progress() {
  if (!has_progress_) return;
  has_progress_ = false;
  write(kEraseLine);
  is_line_open_ = false;
}

void ChatScreen::show(const PromptProgress& progress) {
  const int n_left = progress.n_total - progress.n_cached;
  if (!kind_.is_terminal || !kind_.has_colors || n_left < kLongPrompt || progress.n_done == progress.n_total) return;
  const int n_read = progress.n_done - progress.n_cached;
  write(fmt::format("{}{}processing the prompt: {} of {} tokens{}", kEraseLine, kDim, n_read, n_left, kPlain));
  has_progress_ = true;
}

void ChatScreen::show_reasoning(std::string_view text) {
  if (!kind_.is_terminal) return;
  if (!thinks_) write(kind_.has_colors ? kDim : "(thinking)\n");
  thinks_ = true;
  wrap_.set_width(width());
  write(wrap_.push(sanitize_text(text)));
}

void ChatScreen::end_reasoning() {
  if (!thinks_) return;
  thinks_ = false;
  write(wrap_.finish());
  wrap_ = WordWrap(width());
  const bool needs_line = is_line_open_;
  if (kind_.has_colors) write(kPlain);
  if (needs_line) write("\n");
  write(kind_.has_colors ? "\n" : "(answer)\n");
}

void ChatScreen::show(const Delta& delta) {
  if (const auto* reasoning = std::get_if<ReasoningDelta>(&delta)) {
    erase_progress();
    show_reasoning(reasoning->text);
  } else if (const auto* content = std::get_if<ContentDelta>(&delta)) {
    erase_progress();
    end_reasoning();
    if (!kind_.is_terminal) return write(content->text);
    const std::string text = sanitize_text(content->text);
    markdown_.set_width(width());
    wrap_.set_width(width());
    write(kind_.has_colors ? markdown_.push(text) : wrap_.push(text));
  }
}

void ChatScreen::end_answer() {
  erase_progress();
  end_reasoning();
  if (kind_.is_terminal) write(kind_.has_colors ? markdown_.finish() : wrap_.finish());
  if (is_line_open_ || !kind_.is_terminal) write("\n");
}

void ChatScreen::show_turn(std::string_view question, std::string_view answer) {
  if (!kind_.is_terminal) return;
  constexpr int kPromptColumns = 2;
  const std::string text = wrap_words("> " + sanitize_text(question), width(), kPromptColumns);
  write(kind_.has_colors ? fmt::format("{}{}{}\n", kBold, text, kPlain) : text + "\n");
  begin_answer();
  show(ContentDelta{std::string(answer)});
  end_answer();
}

}  // namespace zinc
