#include "cli/sanitize_text.h"

#include "base/utf8.h"

namespace zinc {
namespace {

constexpr char32_t kPictures = 0x2400;       // U+2400 to U+241F are pictures of the C0 controls
constexpr char32_t kDeletePicture = 0x2421;  // of DEL

char32_t sanitize_char(char32_t code) {
  if (code == '\n' || code == '\t') return code;
  if (code < 0x20) return kPictures + code;
  if (code == 0x7F) return kDeletePicture;
  if ((code >= 0x80 && code < 0xA0) || reorders_line(code)) return kReplacement;
  return code;
}

}  // namespace

bool reorders_line(char32_t code) {
  return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) || code == 0x2028 || code == 0x2029;
}

std::string sanitize_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Char c = next_utf8(text);
    text.remove_prefix(static_cast<size_t>(c.n_bytes));
    append_utf8(out, sanitize_char(c.code));
  }
  return out;
}

}  // namespace zinc
