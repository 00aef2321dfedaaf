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

std::string ChatScreen::prompt() const { return kind_.has_colours ? "\1\x1b[1;32m\1>\1\x1b[0m\1 " : "> "; }

void ChatScreen::write(std::string_view text) {
  if (!written_.ok() || text.empty()) return;
  written_ = write_output(text);
  is_line_open_ = text.back() != '\n';
}

void ChatScreen::say(std::string_view text) {
  if (!kind_.is_terminal) return note(terminal_text(text));
  write(terminal_text(text) + "\n");
}

void ChatScreen::whisper(std::string_view line) {
  const std::string text = one_line(line);
  if (!kind_.is_terminal) return kind_.is_interactive ? note(text) : void();
  write(kind_.has_colours ? fmt::format("{}{}{}\n", kDim, text, kPlain) : text + "\n");
}

void ChatScreen::complain(std::string_view line) {
  const std::string text = one_line(line);
  if (!kind_.is_terminal) return note("zinc: " + text);
  write(kind_.has_colours ? fmt::format("{}{}{}\n", kRed, text, kPlain) : text + "\n");
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
  if (!kind_.is_terminal || !kind_.has_colours || n_left < kLongPrompt || progress.n_done == progress.n_total) return;
  const int n_read = progress.n_done - progress.n_cached;
  write(fmt::format("{}{}reading: {} of {} tokens{}", kEraseLine, kDim, n_read, n_left, kPlain));
  has_progress_ = true;
}

void ChatScreen::show_thought(std::string_view text) {
  if (!kind_.is_terminal) return;
  if (!thinks_) write(kind_.has_colours ? kDim : "(thinking)\n");
  thinks_ = true;
  write(terminal_text(text));
}

void ChatScreen::end_thought() {
  if (!thinks_) return;
  thinks_ = false;
  const bool needs_line = is_line_open_;
  if (kind_.has_colours) write(kPlain);
  if (needs_line) write("\n");
  write(kind_.has_colours ? "\n" : "(answer)\n");
}

void ChatScreen::show(const Delta& delta) {
  if (const auto* thought = std::get_if<ReasoningDelta>(&delta)) {
    erase_progress();
    show_thought(thought->text);
  } else if (const auto* content = std::get_if<ContentDelta>(&delta)) {
    erase_progress();
    end_thought();
    if (!kind_.is_terminal) return write(content->text);
    const std::string text = terminal_text(content->text);
    write(kind_.has_colours ? markdown_.push(text) : text);
  }
}

void ChatScreen::end_answer() {
  erase_progress();
  end_thought();
  if (kind_.has_colours) {
    const bool was_open = is_line_open_;
    write(markdown_.finish());
    is_line_open_ = was_open;
  }
  if (is_line_open_ || !kind_.is_terminal) write("\n");
}

}  // namespace zinc
