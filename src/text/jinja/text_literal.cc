#include "text/jinja/text_literal.h"

#include <charconv>

#include "base/utf8.h"

namespace zinc::jinja {
namespace {

// Simple escapes such as `\n`: letters and their characters.
constexpr std::string_view kLetters = "abfnrtv\\'\"";
constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";

bool is_surrogate(uint32_t code) { return code >= 0xD800 && code <= 0xDFFF; }

// `n_digits` hexadecimal digits at the start of `text`.
Result<uint32_t> read_hex(std::string_view text, size_t n_digits) {
  uint32_t code = 0;
  const std::string_view digits = text.substr(0, n_digits);
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() < n_digits || parsed.ptr != digits.data() + n_digits) {
    return fail(ErrorCode::invalid_input, "truncated escape in string literal: expected {} hexadecimal digits",
                n_digits);
  }
  return code;
}

// Parses the digits of `\x`, `\u` or `\U` at `at` and advances it.
Result<uint32_t> read_code(std::string_view text, size_t& at, size_t n_digits) {
  ZINC_TRY(code, read_hex(text.substr(at), n_digits));
  at += n_digits;
  const bool is_high = code >= 0xD800 && code <= 0xDBFF;
  if (is_high && text.substr(at).starts_with("\\u")) {
    ZINC_TRY(low, read_hex(text.substr(at + 2), 4));
    if (low >= 0xDC00 && low <= 0xDFFF) {
      at += 6;
      return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  if (code > 0x10FFFF || is_surrogate(code)) {
    return fail(ErrorCode::invalid_input, "escape in string literal is not a valid character: {:#x}", code);
  }
  return code;
}

uint32_t read_octal(std::string_view text, size_t& at) {
  uint32_t code = 0;
  for (const size_t end = at + 3; at < end && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++at) {
    code = code * 8 + static_cast<uint32_t>(text[at] - '0');
  }
  return code;
}

}  // namespace

Result<std::string> unescape_literal(std::string_view literal) {
  std::string text;
  text.reserve(literal.size());
  for (size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\' || at + 1 == literal.size()) {
      text.push_back(literal[at++]);
      continue;
    }
    const char c = literal[at + 1];
    if (c == 'N') return fail(ErrorCode::invalid_input, "named characters (\\N) are not supported");
    const size_t letter = kLetters.find(c);
    const size_t n_digits = c == 'x' ? 2 : (c == 'u' ? 4 : (c == 'U' ? 8 : 0));
    at += 2;
    if (letter != std::string_view::npos) {
      text.push_back(kMeanings[letter]);
    } else if (n_digits > 0) {
      ZINC_TRY(code, read_code(literal, at, n_digits));
      append_utf8(text, code);
    } else if (c >= '0' && c <= '7') {
      --at;
      append_utf8(text, read_octal(literal, at));
    } else if (c != '\n') {  // line continuation
      text.push_back('\\');
      text.push_back(c);
    }
  }
  return text;
}

}  // namespace zinc::jinja
