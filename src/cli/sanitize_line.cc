#include "cli/sanitize_line.h"

#include <fmt/core.h>

#include "base/utf8.h"
#include "cli/sanitize_text.h"

namespace zinc {
namespace {

bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0) || reorders_line(code); }

}  // namespace

std::string sanitize_line(std::string_view message) {
  std::string out;
  while (!message.empty()) {
    const Utf8Char c = next_utf8(message);
    message.remove_prefix(static_cast<size_t>(c.n_bytes));
    if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (is_control(c.code)) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c.code));
    } else {
      append_utf8(out, c.code);
    }
  }
  return out;
}

}  // namespace zinc
