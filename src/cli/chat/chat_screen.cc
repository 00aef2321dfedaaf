#include "cli/chat/chat_screen.h"

#include <fmt/core.h>

#include "cli/one_line.h"
#include "cli/output.h"
#include "cli/terminal_text.h"

namespace zinc {
namespace {

constexpr std::string_view kDim = "\x1b[2m", kRed = "\x1b[31m", kPlain = "\x1b[0m", kEraseLine = "\r\x1b[2K";
constexpr int kLongPrompt = 512;  // tokens; shorter ones are read before anyone wonders

}  // namespace

std::string ChatScreen::prompt() const { return has_colours_ ? "\1\x1b[1;32m\1>\1\x1b[0m\1 " : "> "; }

void ChatScreen::write(std::string_view text) {
  if (!written_.ok() || text.empty()) return;
  written_ = write_output(text);
  is_line_open_ = text.back() != '\n';
}

void ChatScreen::say(std::string_view text) {
  if (!is_terminal_) return note(text);
  write(terminal_text(text) + "\n");
}

void ChatScreen::whisper(std::string_view line) {
  if (!is_terminal_) return;
  const std::string text = one_line(line);
  write(has_colours_ ? fmt::format("{}{}{}\n", kDim, text, kPlain) : text + "\n");
}

void ChatScreen::complain(std::string_view line) {
  const std::string text = one_line(line);
  if (!is_terminal_) return note("zinc: " + text);
  write(has_colours_ ? fmt::format("{}{}{}\n", kRed, text, kPlain) : text + "\n");
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
  if (!is_terminal_ || !has_colours_ || n_left < kLongPrompt || progress.n_done == progress.n_total) return;
  const int n_read = progress.n_done - progress.n_cached;
  write(fmt::format("{}{}reading: {} of {} tokens{}", kEraseLine, kDim, n_read, n_left, kPlain));
  has_progress_ = true;
}

void ChatScreen::show_thought(std::string_view text) {
  if (!is_terminal_) return;
  if (!thinks_) write(has_colours_ ? kDim : "(thinking)\n");
  thinks_ = true;
  write(terminal_text(text));
}

void ChatScreen::end_thought() {
  if (!thinks_) return;
  thinks_ = false;
  const bool needs_line = is_line_open_;
  if (has_colours_) write(kPlain);
  if (needs_line) write("\n");
  write(has_colours_ ? "\n" : "(answer)\n");
}

void ChatScreen::show(const Delta& delta) {
  if (const auto* thought = std::get_if<ReasoningDelta>(&delta)) {
    erase_progress();
    show_thought(thought->text);
  } else if (const auto* content = std::get_if<ContentDelta>(&delta)) {
    erase_progress();
    end_thought();
    if (!is_terminal_) return write(content->text);
    const std::string text = terminal_text(content->text);
    write(has_colours_ ? markdown_.push(text) : text);
  }
}

void ChatScreen::end_answer() {
  erase_progress();
  end_thought();
  if (has_colours_) {
    const bool was_open = is_line_open_;
    write(markdown_.finish());
    is_line_open_ = was_open;
  }
  if (is_line_open_ || !is_terminal_) write("\n");
}

}  // namespace zinc
