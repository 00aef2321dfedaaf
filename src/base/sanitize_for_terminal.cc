#include "base/sanitize_for_terminal.h"

#include <fmt/format.h>

#include <iterator>

#include "base/utf8.h"

namespace zinc {
namespace {

void append_escaped(std::string& out, std::string_view bytes, const Utf8Char& character) {
  if (!character.valid) {
    for (const char c : bytes) fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
  } else if (character.code == '\n') {
    out += "\\n";
  } else if (character.code == '\t') {
    out += "\\t";
  } else if (character.code == '\'' || character.code == '\\') {
    out += '\\';
    out += bytes;
  } else if (is_control(character.code)) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(character.code));
  } else {
    out += bytes;
  }
}

}  // namespace

bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029 ||
         (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);  // the last two reorder a line
}

std::string sanitize_for_terminal(std::string_view text, size_t max_bytes) {
  std::string out;
  std::string_view rest = text;
  while (!rest.empty()) {
    if (text.size() - rest.size() >= max_bytes) return out + fmt::format("... ({} bytes)", text.size());
    const Utf8Char character = next_utf8(rest);
    append_escaped(out, rest.substr(0, static_cast<size_t>(character.n_bytes)), character);
    rest.remove_prefix(static_cast<size_t>(character.n_bytes));
  }
  return out;
}

}  // namespace zinc
