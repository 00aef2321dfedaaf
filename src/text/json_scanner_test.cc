#include "text/json_scanner.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"

namespace zinc {
namespace {

// Whether the scanner accepts `text` as one complete value, at its last byte.
bool accepts(std::string_view text) {
  JsonScanner scanner;
  for (size_t i = 0; i < text.size(); ++i) {
    const JsonScanner::Step step = scanner.push(text[i]);
    if (step == JsonScanner::Step::error) return false;
    if (step == JsonScanner::Step::done) return i + 1 == text.size();
  }
  return false;
}

TEST(JsonScanner, agrees_with_the_parser) {
  const char* kTexts[] = {
      "{}",
      "[]",
      "{\"a\":1}",
      "{\"a\":1,}",
      "[1,2]",
      "[1,]",
      "[,1]",
      "{\"a\"}",
      "{\"a\":}",
      "{a:1}",
      "[01]",
      "[-]",
      "[-0]",
      "[1.]",
      "[.5]",
      "[1.5e+3]",
      "[1e]",
      "[1e+]",
      "[+1]",
      "[tru]",
      "[true]",
      "[nulll]",
      "[\"\\x\"]",
      "[\"\\u12g4\"]",
      "[\"\\u1234\"]",
      "{\"a\":[{}]}",
      "{\"a\":[}]}",
      "[1 2]",
      "{\"a\" 1}",
      "{\"a\":1 \"b\":2}",
      "{,}",
      "[\"a\",\"b\"]",
      "{\"a\":1,\"b\":{\"c\":[]}}",
      " [ 1 , { } ] ",
      "{1:2}",
      "[\"\"]",
  };
  for (const std::string text : kTexts) {
    const std::string trimmed = text.substr(0, text.find_last_not_of(' ') + 1);
    EXPECT_EQ(accepts(trimmed), parse_json(text).ok()) << text;
  }
}

// All texts of up to five structural JSON bytes, in brackets.
TEST(JsonScanner, agrees_with_the_parser_on_all_short_texts) {
  constexpr std::string_view kAlphabet = "{}[],:\"0-.e\\u ";
  std::string inner;
  int n_accepted = 0, n_all = 0;
  const auto visit = [&](const auto& self) -> void {
    const std::string text = "[" + inner + "]";
    const bool expected = parse_json(text).ok();
    n_accepted += expected;
    ++n_all;
    ASSERT_EQ(accepts(text), expected) << text;
    if (inner.size() == 5) return;
    for (const char c : kAlphabet) {
      inner.push_back(c);
      self(self);
      inner.pop_back();
    }
  };
  visit(visit);
  EXPECT_GT(n_accepted, 100);
  fmt::print("{} texts, {} of them JSON\n", n_all, n_accepted);
}

TEST(JsonScanner, nesting_limit_is_below_the_parsers) {
  const std::string deep = std::string(60, '[') + std::string(60, ']');
  EXPECT_TRUE(accepts(deep));
  EXPECT_FALSE(accepts("[" + deep + "]"));
  EXPECT_TRUE(parse_json("[[[" + deep + "]]]").ok());
}

TEST(JsonScanner, control_characters_in_strings_are_escaped) {
  JsonScanner scanner;
  std::string out;
  for (const char c : std::string("[\"a\n\t\x01\"]")) {
    const bool in_string = scanner.in_string();
    ASSERT_NE(scanner.push(c), JsonScanner::Step::error);
    append_scanned(out, c, in_string);
  }
  EXPECT_EQ(out, "[\"a\\n\\t\\u0001\"]");
}

}  // namespace
}  // namespace zinc
