#include "cli/chat/markdown_span.h"

#include <algorithm>

namespace zinc {
namespace {

using Kind = MarkdownSpan::Kind;

constexpr size_t kMaxEmphasis = 3;  // marks of bold and italic

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }
bool is_letter_or_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
// Letters of other scripts count: their bytes are above 127.
bool is_word_byte(char c) { return is_letter_or_digit(c) || static_cast<unsigned char>(c) > 127; }

// Whether a mark beside this byte is part of a word. Chinese and Japanese put ** between letters.
bool joins_word(char mark, char neighbor) {
  return mark == '_' ? is_word_byte(neighbor) : is_letter_or_digit(neighbor);
}

size_t run_length(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(text[at], at), text.size()) - at;
}

MarkdownSpan plain(std::string_view line, size_t n_bytes) { return {Kind::text, line.substr(0, n_bytes), n_bytes}; }

// The start of the run of exactly `n` backticks from `at` on; npos: there is none.
size_t find_ticks(std::string_view line, size_t at, size_t n) {
  while ((at = line.find('`', at)) != std::string_view::npos) {
    const size_t n_run = run_length(line, at);
    if (n_run == n) return at;
    at += n_run;
  }
  return at;
}

MarkdownSpan code_span(std::string_view line, bool is_complete) {
  const size_t n = run_length(line, 0);
  const size_t end = find_ticks(line, n, n);
  const bool is_open = end == std::string_view::npos || end + n == line.size();  // one more tick makes another run
  if (is_open && !is_complete) return {};
  if (end == std::string_view::npos) return plain(line, n);
  std::string_view text = line.substr(n, end - n);
  const bool is_padded = text.size() > 2 && text.front() == ' ' && text.back() == ' ';  // for code with ticks
  if (is_padded) text = text.substr(1, text.size() - 2);
  return {Kind::code, text, end + n};
}

// The next place from `at` on where a mark has its meaning, after escaped characters and inline code.
size_t skip_code(std::string_view line, size_t at) {
  if (line[at] == '\\') return std::min(at + 2, line.size());
  const size_t n = run_length(line, at);
  const size_t end = find_ticks(line, at + n, n);
  return end == std::string_view::npos ? at + n : end + n;
}

MarkdownSpan emphasis_span(std::string_view line, char before, bool is_complete) {
  const char mark = line[0];
  const size_t n = run_length(line, 0);
  if (n == line.size()) return is_complete ? plain(line, n) : MarkdownSpan{};
  if (n > kMaxEmphasis || is_space(line[n]) || joins_word(mark, before)) return plain(line, n);
  for (size_t i = n; i < line.size();) {
    if (line[i] == '\\' || line[i] == '`') {
      i = skip_code(line, i);
      continue;
    }
    if (line[i] != mark) {
      ++i;
      continue;
    }
    const size_t n_run = run_length(line, i), end = i + n_run;
    if (end == line.size() && !is_complete) return {};  // the next character decides
    const char after = end < line.size() ? line[end] : '\n';
    const bool has_length = n_run == n || n_run == kMaxEmphasis;  // *** closes an inner span too
    if (has_length && !is_space(line[i - 1]) && !joins_word(mark, after)) {
      const Kind kind = n == 1 ? Kind::italic : n == 2 ? Kind::bold : Kind::bold_italic;
      return {kind, line.substr(n, end - n - n), end};
    }
    i = end;
  }
  return is_complete ? plain(line, n) : MarkdownSpan{};
}

// Only marks: the backslashes of formulas stay.
MarkdownSpan escaped_span(std::string_view line, bool is_complete) {
  if (line.size() == 1) return is_complete ? plain(line, 1) : MarkdownSpan{};
  const bool is_mark = std::string_view("*_`#~").find(line[1]) != std::string_view::npos;
  if (!is_mark) return plain(line, 1);
  return {Kind::text, line.substr(1, 1), 2};
}

}  // namespace

MarkdownSpan first_markdown_span(std::string_view line, char before, bool is_complete) {
  switch (line[0]) {
    case '\\':
      return escaped_span(line, is_complete);
    case '`':
      return code_span(line, is_complete);
    case '*':
    case '_':
      return emphasis_span(line, before, is_complete);
    default:
      return plain(line, std::min(line.find_first_of("\\`*_", 1), line.size()));
  }
}

}  // namespace zinc
