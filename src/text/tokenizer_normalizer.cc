#include "text/tokenizer_normalizer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/utf8.h"

namespace zinc {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581
constexpr char32_t kMaxCode = 0x10FFFF;

struct LenientChar {
  char32_t code;
  size_t n_bytes;
  bool valid;
};

// The first character; overlong encodings and surrogates are accepted.
LenientChar decode_leniently(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {lead, 1, true};
  const size_t n_bytes = utf8_length(text[0]);
  if (n_bytes == 1 || lead >= 0xF8 || n_bytes > text.size()) return {kReplacement, 1, false};
  char32_t code = lead & (0x7Fu >> n_bytes);
  for (size_t i = 1; i < n_bytes; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if ((byte & 0xC0u) != 0x80) return {kReplacement, 1, false};
    code = (code << 6) | (byte & 0x3Fu);
  }
  if (code > kMaxCode) return {kReplacement, 1, false};
  return {code, n_bytes, true};
}

bool is_shortest(char32_t code, size_t n_bytes) {
  return n_bytes == (code < 0x80 ? 1u : code < 0x800 ? 2u : code < 0x10000 ? 3u : 4u);
}

// The length of the longest prefix that repair_utf8 would not change.
size_t valid_prefix_bytes(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word;
    if (text.size() - at >= sizeof word) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & kHighBits) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const LenientChar c = decode_leniently(text.substr(at));
    if (!c.valid || !is_shortest(c.code, c.n_bytes)) break;
    at += c.n_bytes;
  }
  return at;
}

}  // namespace

std::string_view repair_utf8(std::string_view text, std::string& buffer) {
  size_t at = valid_prefix_bytes(text);
  if (at == text.size()) return text;
  buffer.assign(text.substr(0, at));
  while (at < text.size()) {
    const LenientChar c = decode_leniently(text.substr(at));
    append_utf8(buffer, c.code);
    at += c.n_bytes;
  }
  return buffer;
}

bool is_loosely_valid_utf8(std::string_view text) { return valid_prefix_bytes(text) == text.size(); }

bool is_whole_char(std::string_view character) {
  const auto is_continuation = [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0u) == 0x80; };
  return !is_continuation(character[0]) && character.size() == utf8_length(character[0]) &&
         std::all_of(character.begin() + 1, character.end(), is_continuation);
}

std::string escape_whitespace(std::string_view text) {
  std::string out;
  for (const char byte : text) {
    if (byte == ' ') {
      out += kSpaceSymbol;
    } else {
      out.push_back(byte);
    }
  }
  return out;
}

std::string_view unescape_whitespace(std::string_view text, std::string& buffer) {
  size_t mark = text.find(kSpaceSymbol);
  if (mark == std::string_view::npos) return text;
  std::string out;
  size_t at = 0;
  for (; mark != std::string_view::npos; mark = text.find(kSpaceSymbol, at)) {
    out.append(text.substr(at, mark - at)).push_back(' ');
    at = mark + kSpaceSymbol.size();
  }
  out.append(text.substr(at));
  buffer.swap(out);  // `text` may be a view of `buffer`
  return buffer;
}

}  // namespace zinc
