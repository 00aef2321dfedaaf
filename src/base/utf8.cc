#include "base/utf8.h"

#include <cstdint>

#include "base/check.h"

namespace zinc {
namespace {

// A lead byte: number of continuation bytes, and the range of the first one (the others are 80..BF).
struct Lead {
  int n_continuation;
  uint8_t first_low, first_high;
  char32_t bits;
};

Lead classify(uint8_t byte) {
  if (byte < 0x80) return {0, 0, 0, byte};
  if (byte < 0xC2) return {-1, 0, 0, 0};
  if (byte < 0xE0) return {1, 0x80, 0xBF, byte & 0x1Fu};
  if (byte == 0xE0) return {2, 0xA0, 0xBF, 0};
  if (byte == 0xED) return {2, 0x80, 0x9F, 0xD};
  if (byte < 0xF0) return {2, 0x80, 0xBF, byte & 0x0Fu};
  if (byte == 0xF0) return {3, 0x90, 0xBF, 0};
  if (byte < 0xF4) return {3, 0x80, 0xBF, byte & 0x07u};
  if (byte == 0xF4) return {3, 0x80, 0x8F, 4};
  return {-1, 0, 0, 0};
}

// Reads as much of one character as is well-formed. n_bytes == 1 + n_continuation means it is complete.
struct Prefix {
  Lead lead;
  char32_t code;
  int n_bytes;
};

Prefix read_prefix(std::string_view text) {
  const Lead lead = classify(static_cast<uint8_t>(text[0]));
  Prefix prefix{lead, lead.bits, 1};
  for (int i = 1; i <= lead.n_continuation && static_cast<size_t>(i) < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[static_cast<size_t>(i)]);
    const uint8_t low = i == 1 ? lead.first_low : uint8_t{0x80};
    const uint8_t high = i == 1 ? lead.first_high : uint8_t{0xBF};
    if (byte < low || byte > high) break;
    prefix.code = (prefix.code << 6) | (byte & 0x3Fu);
    ++prefix.n_bytes;
  }
  return prefix;
}

}  // namespace

Utf8Char next_utf8(std::string_view text) {
  ZINC_DCHECK(!text.empty());
  const uint8_t first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {first, 1, true};
  const Prefix prefix = read_prefix(text);
  if (prefix.n_bytes == prefix.lead.n_continuation + 1) return {prefix.code, prefix.n_bytes, true};
  return {kReplacement, prefix.n_bytes, false};
}

size_t incomplete_utf8_suffix(std::string_view text) {
  for (size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    const std::string_view tail = text.substr(text.size() - n);
    const uint8_t byte = static_cast<uint8_t>(tail[0]);
    if ((byte & 0xC0u) == 0x80) continue;  // a continuation byte: the lead is further left
    const Prefix prefix = read_prefix(tail);
    const bool is_incomplete =
        static_cast<size_t>(prefix.n_bytes) == n && prefix.n_bytes < prefix.lead.n_continuation + 1;
    return is_incomplete ? n : 0;
  }
  return 0;
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = next_utf8(text);
    if (!c.valid) return false;
    text.remove_prefix(static_cast<size_t>(c.n_bytes));
  }
  return true;
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(static_cast<uint8_t>(byte))); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0u | (code >> 6));
    put(0x80u | (code & 0x3Fu));
  } else if (code < 0x10000) {
    put(0xE0u | (code >> 12));
    put(0x80u | ((code >> 6) & 0x3Fu));
    put(0x80u | (code & 0x3Fu));
  } else {
    put(0xF0u | (code >> 18));
    put(0x80u | ((code >> 12) & 0x3Fu));
    put(0x80u | ((code >> 6) & 0x3Fu));
    put(0x80u | (code & 0x3Fu));
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  if (is_valid_utf8(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = next_utf8(text);
    append_utf8(out, c.code);
    text.remove_prefix(static_cast<size_t>(c.n_bytes));
  }
  return out;
}

}  // namespace zinc
