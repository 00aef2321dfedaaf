#include "cli/chat/message_input.h"

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
  return fail(ErrorCode::invalid_input, "a message is longer than {} bytes", kMaxMessageBytes);
}

// Lines after `text` for as long as `is_open` says so of what there is.
template <class IsOpen>
Result<Input> read_more(LineSource& lines, std::string text, IsOpen is_open) {
  while (is_open(text)) {
    ZINC_TRY(more, lines.read_line(kMorePrompt));
    if (more.kind == InputKind::interrupted) return more;
    if (more.kind == InputKind::end) break;
    text += "\n" + more.text;
    if (Status fits = check_size(text); !fits.ok()) return fits.error();
  }
  return Input{.text = std::move(text)};
}

}  // namespace

Result<Input> PlainLines::read_line(const std::string& prompt) {
  if (shows_prompts_) {
    if (Status shown = write_output(prompt); !shown.ok()) return shown.error();
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
  if (first.kind != InputKind::text) return first;
  if (first.text.starts_with(kQuotes)) {
    const auto is_open = [](const std::string& text) {
      return text.find(kQuotes, kQuotes.size()) == std::string::npos;
    };
    ZINC_TRY(block, read_more(lines, first.text, is_open));
    if (block.kind != InputKind::text) return block;
    std::string text = block.text.substr(kQuotes.size());
    if (const size_t end = text.find(kQuotes); end != std::string::npos) text.resize(end);
    if (text.starts_with('\n')) text.erase(0, 1);
    if (text.ends_with('\n')) text.pop_back();
    return Input{.text = std::move(text), .is_quoted = true};
  }
  std::string text = first.text;
  while (text.ends_with('\\')) {
    text.pop_back();
    const size_t n_before = text.size();
    ZINC_TRY(more, read_more(lines, text, [&](const std::string& t) { return t.size() == n_before; }));
    if (more.kind != InputKind::text || more.text.size() == n_before) return more;
    text = more.text;
  }
  return Input{.text = std::move(text)};
}

}  // namespace zinc
