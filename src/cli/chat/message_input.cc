#include "cli/chat/message_input.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/output.h"

namespace zinc {
namespace {

constexpr size_t kMaxMessageBytes = size_t{64} << 20;  // more than any model's context holds
constexpr std::string_view kQuotes = "\"\"\"";
constexpr const char* kMorePrompt = "... ";

Status check_size(const std::string& text) {
  if (text.size() <= kMaxMessageBytes) return ok_status();
  return fail(ErrorCode::invalid_input, "the message is longer than {} bytes", kMaxMessageBytes);
}

// Reads lines and appends them to `text` while `is_open(text)`.
template <class IsOpen>
Result<Input> read_more(LineSource& lines, std::string text, IsOpen is_open) {
  while (is_open(text)) {
    ZINC_TRY(more, lines.read_line(kMorePrompt));
    if (more.kind == InputKind::interrupted) return Input{.kind = more.kind, .text = text + "\n" + more.text};
    if (more.kind == InputKind::end) break;
    text += "\n" + more.text;
    if (Status fits = check_size(text); !fits.ok()) return fits.error();
  }
  return Input{.text = std::move(text)};
}

// Whether a text that begins with quotes also ends with quotes. Quotes inside a line are text.
bool is_closed(const std::string& text) { return text.size() >= 2 * kQuotes.size() && text.ends_with(kQuotes); }

// The text between the quotes, which may stand on their own lines.
std::string inside_quotes(const std::string& block) {
  std::string text = block.substr(kQuotes.size());
  if (is_closed(block)) text.resize(text.size() - kQuotes.size());
  if (text.starts_with('\n')) text.erase(0, 1);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

Result<Input> PlainLines::read_line(const std::string& prompt) {
  if (prompts_ == Prompts::to_output) {
    if (Status shown = write_output(prompt); !shown.ok()) return shown.error();
  } else if (prompts_ == Prompts::to_errors) {
    std::fwrite(prompt.data(), 1, prompt.size(), stderr);
  }
  Input line;
  int c = 0;
  while ((c = std::fgetc(stdin)) != EOF && c != '\n') {
    line.text += static_cast<char>(c);
    if (Status fits = check_size(line.text); !fits.ok()) return fits.error();
  }
  if (std::ferror(stdin)) {
    return fail(ErrorCode::io, "standard input could not be read: {}", std::strerror(errno));
  }
  if (c == EOF && line.text.empty()) line.kind = InputKind::end;
  if (line.text.ends_with('\r')) line.text.pop_back();
  return line;
}

Result<Input> read_message(LineSource& lines, const std::string& prompt) {
  ZINC_TRY(first, lines.read_line(prompt));
  if (first.kind != InputKind::text || first.is_quoted) return first;
  if (first.text.starts_with(kQuotes)) {
    ZINC_TRY(block, read_more(lines, first.text, [](const std::string& text) { return !is_closed(text); }));
    if (block.kind != InputKind::text) return block;
    return Input{.text = inside_quotes(block.text), .is_quoted = true};
  }
  std::string text = first.text;
  while (text.ends_with('\\') && first.text.find('\n') == std::string::npos) {
    text.pop_back();
    const size_t n_before = text.size();
    ZINC_TRY(more, read_more(lines, text, [&](const std::string& t) { return t.size() == n_before; }));
    if (more.kind != InputKind::text || more.text.size() == n_before) return more;
    text = more.text;
  }
  return Input{.text = std::move(text)};
}

std::string as_typed(const Input& message) {
  const std::string& text = message.text;
  const bool is_plain = !text.starts_with('/') && !text.starts_with(kQuotes) && !text.ends_with('\\');
  if (!message.is_quoted || is_plain) return text;
  return fmt::format("{0}\n{1}\n{0}", kQuotes, text);
}

}  // namespace zinc
