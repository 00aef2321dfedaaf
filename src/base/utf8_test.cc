#include "base/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace zinc {
namespace {

// Table 3-7 of the Unicode standard: the well-formed byte sequences, as ranges per byte.
struct Range {
  uint8_t low, high;
};
struct Row {
  size_t n_bytes;
  Range bytes[4];
};
constexpr Row kWellFormed[] = {
    {1, {{0x00, 0x7F}}},
    {2, {{0xC2, 0xDF}, {0x80, 0xBF}}},
    {3, {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}}},
    {3, {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {3, {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}}},
    {3, {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}},
};

// By the table alone: the longest prefix of `text` that begins some row, and whether it fills the row.
struct Subpart {
  size_t n_bytes = 0;
  bool is_whole = false;
};
Subpart longest_subpart(std::string_view text) {
  for (const Row& row : kWellFormed) {  // no two rows share a first byte
    size_t n = 0;
    while (n < row.n_bytes && n < text.size()) {
      const uint8_t byte = static_cast<uint8_t>(text[n]);
      if (byte < row.bytes[n].low || byte > row.bytes[n].high) break;
      ++n;
    }
    if (n > 0) return {n, n == row.n_bytes};
  }
  return {};
}

char32_t decode(std::string_view bytes) {
  if (bytes.size() == 1) return static_cast<uint8_t>(bytes[0]);
  const uint32_t lead_bits = bytes.size() == 2 ? 0x1F : bytes.size() == 3 ? 0x0F : 0x07;
  uint32_t code = static_cast<uint8_t>(bytes[0]) & lead_bits;
  for (const char c : bytes.substr(1)) code = code * 64 + (static_cast<uint8_t>(c) & 0x3F);
  return code;
}

// Walks `text` with both, and compares. Returns whether they agree.
bool agrees(std::string_view text) {
  size_t n_open = 0;  // the incomplete character at the end, by the table
  bool is_valid = true;
  std::string_view rest = text;
  while (!rest.empty()) {
    const Subpart part = longest_subpart(rest);
    const size_t n_bytes = part.n_bytes == 0 ? 1 : part.n_bytes;
    const Utf8Char c = next_utf8(rest);
    if (static_cast<size_t>(c.n_bytes) != n_bytes || c.valid != part.is_whole) return false;
    if (c.code != (part.is_whole ? decode(rest.substr(0, n_bytes)) : kReplacement)) return false;
    is_valid = is_valid && part.is_whole;
    n_open = part.n_bytes == rest.size() && !part.is_whole ? part.n_bytes : 0;
    rest.remove_prefix(n_bytes);
  }
  return is_valid_utf8(text) == is_valid && incomplete_utf8_suffix(text) == n_open;
}

std::string hex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    out += "0123456789ABCDEF"[byte / 16];
    out += "0123456789ABCDEF"[byte % 16];
    out += ' ';
  }
  return out;
}

TEST(Utf8, every_string_of_one_to_three_bytes_is_read_as_the_standards_table_says) {
  for (int n_bytes = 1; n_bytes <= 3; ++n_bytes) {
    for (uint32_t i = 0; i < 1u << (8 * n_bytes); ++i) {
      const char bytes[] = {static_cast<char>(i & 0xFF), static_cast<char>(i >> 8 & 0xFF), static_cast<char>(i >> 16)};
      const std::string_view text(bytes, static_cast<size_t>(n_bytes));
      if (!agrees(text)) FAIL() << hex(text);
    }
  }
}

// Every byte that is a limit of some range in the table, and its neighbors.
const std::string kEdges =
    "\x41\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0\xF1\xF3\xF4\xF5\xFF";

template <class Check>
void for_all_edge_strings(Check check) {
  for (const char a : kEdges) {
    for (const char b : kEdges) {
      for (const char c : kEdges) {
        for (const char d : kEdges) check(std::string{a, b, c, d});
      }
    }
  }
}

TEST(Utf8, strings_of_four_edge_bytes_are_read_as_the_standards_table_says) {
  for_all_edge_strings([](const std::string& text) { ASSERT_TRUE(agrees(text)) << hex(text); });
}

TEST(Utf8, replacing_piece_by_piece_equals_replacing_the_whole) {
  for_all_edge_strings([](const std::string& text) {
    const std::string whole = replace_invalid_utf8(text);
    ASSERT_TRUE(is_valid_utf8(whole)) << hex(text);
    std::string pieces, held;
    for (const char c : text) {
      held += c;
      const size_t n_ready = held.size() - incomplete_utf8_suffix(held);
      pieces += replace_invalid_utf8(held.substr(0, n_ready));
      held.erase(0, n_ready);
    }
    ASSERT_EQ(pieces + replace_invalid_utf8(held), whole) << hex(text);
  });
}

TEST(Utf8, every_scalar_value_survives_writing_and_reading) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code);
    const Utf8Char c = next_utf8(text);
    ASSERT_TRUE(c.valid && c.code == code && static_cast<size_t>(c.n_bytes) == text.size())
        << static_cast<uint32_t>(code);
  }
}

TEST(Utf8, the_standards_own_examples_of_replacement) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Utf8, valid_text_is_left_as_it_is) {
  const std::string text = std::string("aé東🙂\0z", 12);
  EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_EQ(replace_invalid_utf8(text), text);
  EXPECT_TRUE(is_valid_utf8(""));
  EXPECT_EQ(incomplete_utf8_suffix(""), 0u);
}

}  // namespace
}  // namespace zinc
