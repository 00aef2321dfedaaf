#include "cli/chat/chat_screen.h"

#include <fmt/core.h>

#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "cli/sanitize_text.h"

namespace zinc {
namespace {

constexpr std::string_view kDim = "\x1b[2m", kRed = "\x1b[31m", kPlain = "\x1b[0m", kEraseLine = "\r\x1b[2K";
constexpr int kLongPrompt = 512;  // tokens; shorter prompts are read too fast to show progress

}  // namespace

std::string ChatScreen::prompt() const { return kind_.has_colors ? "\1\x1b[1;32m\1>\1\x1b[0m\1 " : "> "; }

void ChatScreen::write(std::string_view text) {
  if (!written_.ok() || text.empty()) return;
  written_ = write_output(text);
  is_line_open_ = text.back() != '\n';
}

void ChatScreen::print(std::string_view text) {
  if (!kind_.is_terminal) return print_stderr(sanitize_text(text));
  write(sanitize_text(text) + "\n");
}

void ChatScreen::print_status(std::string_view line) {
  const std::string text = sanitize_line(line);
  if (!kind_.is_terminal) return kind_.is_interactive ? print_stderr(text) : void();
  write(kind_.has_colors ? fmt::format("{}{}{}\n", kDim, text, kPlain) : text + "\n");
}

void ChatScreen::print_warning(std::string_view line) {
  const std::string text = sanitize_line(line);
  if (!kind_.is_terminal) return print_stderr("zinc: " + text);
  write(kind_.has_colors ? fmt::format("{}{}{}\n", kRed, text, kPlain) : text + "\n");
}

void ChatScreen::begin_answer() {
  markdown_ = MarkdownView();
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
  write(sanitize_text(text));
}

void ChatScreen::end_reasoning() {
  if (!thinks_) return;
  thinks_ = false;
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
    write(kind_.has_colors ? markdown_.push(text) : text);
  }
}

void ChatScreen::end_answer() {
  erase_progress();
  end_reasoning();
  if (kind_.has_colors) {
    const bool was_open = is_line_open_;
    write(markdown_.finish());
    is_line_open_ = was_open;
  }
  if (is_line_open_ || !kind_.is_terminal) write("\n");
}

}  // namespace zinc
