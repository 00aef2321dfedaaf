#include "constrain/regex.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/grammar_matcher.h"

namespace zinc {
namespace {

Result<Grammar> grammar_of(std::string_view pattern, const LengthLimits& limits = {}) {
  GrammarBuilder builder;
  ZINC_TRY(expr, regex_grammar(builder, pattern, limits));
  const GrammarBuilder::Rule root = builder.declare("root");
  builder.define(root, expr);
  return builder.finish(root);
}

struct Case {
  std::string_view pattern;
  std::vector<std::string_view> accepted, rejected;
};

TEST(Regex, text_grammar_matches_the_whole_plain_text) {
  for (const std::string_view pattern : {"a\"[\n]b+", "^a\"[\n]b+$"}) {
    const Result<Grammar> grammar = regex_text_grammar(pattern);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    GrammarMatcher matcher(grammar.value());
    EXPECT_TRUE(matcher.matches("a\"\nbb"));
    EXPECT_FALSE(matcher.matches("xa\"\nb"));
    EXPECT_FALSE(matcher.matches("a\\\"\\nb"));
  }
}

TEST(Regex, matches_as_ecma_262_specifies) {
  const Case kCases[] = {
      {"", {"", "abc"}, {}},
      {"^$", {""}, {"a"}},
      {"^abc$", {"abc"}, {"", "ab", "abcd", "xabc"}},
      {"b", {"b", "abc", "bb"}, {"", "ac"}},
      {"^a", {"a", "ab"}, {"", "ba"}},
      {"a$", {"a", "ba"}, {"", "ab"}},
      {"^a|b$", {"a", "ax", "xb", "b"}, {"xa", "bx"}},
      {"^(a|bc)*$", {"", "a", "bca", "abcbc"}, {"b", "ab"}},
      {"^(?:a|b)+?c??$", {"a", "abc"}, {"", "c"}},
      {"^(?<year>\\d{4})-\\d{2,3}$", {"2024-01", "2024-123"}, {"204-01", "2024-1"}},
      {"^a{2}b{0,1}c{1,}$", {"aac", "aabccc"}, {"ac", "aab"}},
      {"^a{0}$", {""}, {"a"}},
      {"^[a-cx\\d_-]$", {"a", "c", "x", "5", "_", "-"}, {"d", "", "aa"}},
      {"^[^a-z]$", {"A", "é", "\\n", "\\\"", "\\u0001"}, {"a", "\n", "\""}},
      {"^.$", {"a", "é", "😀", "\\\"", "\\\\", "\\t"}, {"", "\\n", "\\r", "ab", "\xE2\x80\xA8"}},
      {"^\\w\\W\\s\\S\\D$", {"a- bc", "_-\\tbc"}, {"a- b1", "--  a"}},
      {"^\\.\\/\\-\\$\\^\\{\\}\\[\\]\\(\\)\\|\\*\\+\\?$", {"./-$^{}[]()|*+?"}, {"a"}},
      {"^\\\\\"$", {R"(\\\")"}, {R"(\")"}},
      {"^\\n\\t\\r\\f\\v\\0$", {R"(\n\t\r\f\u000b\u0000)"}, {}},
      {"^[\\b]$", {"\\b"}, {"b"}},
      {"^\\x41\\u00e9\\u{1F600}\\ud83d\\ude00$", {"Aé😀😀"}, {"A"}},
      {"^[\\u0000-\\u001f]$", {"\\u0000", "\\u001f", "\\n", "\\u001a"}, {"\\u000a", " ", "\x01"}},
      {"^[α-ω]+$", {"αβω"}, {"a", "Ω"}},
      {"^\\p{L}+$", {"aéЖ中"}, {"1", " ", "-"}},
      {"^\\p{Lu}\\p{Ll}*\\P{L}$", {"Abc1", "Élan "}, {"abc1", "Abcd"}},
      {"^[\\p{N}_]$", {"7", "_"}, {"a"}},
      {"^[^\\p{L}\\p{N}]$", {"-", " "}, {"a", "7"}},
      {"^(a*)*$", {"", "aaa"}, {"b"}},
      {"^((a|)*|b+)*$", {"", "aabba"}, {"c"}},
      {"^(|a)$", {"", "a"}, {"aa"}},
      {"^a(b(c(d)?)?)?$", {"a", "ab", "abc", "abcd"}, {"abd"}},
  };
  for (const auto& [pattern, accepted, rejected] : kCases) {
    Result<Grammar> grammar = grammar_of(pattern);
    ASSERT_TRUE(grammar.ok()) << pattern << ": " << grammar.error().message;
    GrammarMatcher matcher(std::move(grammar.value()));
    for (const std::string_view text : accepted)
      EXPECT_TRUE(matcher.matches(text)) << pattern << " should match " << text;
    for (const std::string_view text : rejected)
      EXPECT_FALSE(matcher.matches(text)) << pattern << " should not match " << text;
  }
}

TEST(Regex, malformed_or_unsupported_pattern_is_rejected) {
  for (const char* pattern :
       {"(",    ")",    "a)",    "(a",       "[a",          "[b-a]", "[\\d-z]", "*",      "+a",     "a**",    "a{2,1}",
        "a{",   "a{x}", "a{,3}", "a{20000}", "\\",          "\\1",   "\\k<a>",  "\\b",    "\\B",    "\\p{Q}", "\\c",
        "\\q",  "\\x4", "\\u12", "\\u{}",    "\\u{110000}", "\\u{1", "(?=a)",   "(?!a)",  "(?<=a)", "(?<!a)", "(?i)a",
        "(?<a", "a^b",  "a$b",   "(^a)",     "(a$)",        "^^a",   "\\01",    "^[]a]$", "\xFF",   "[\xFF]"}) {
    const Result<Grammar> grammar = grammar_of(pattern);
    EXPECT_FALSE(grammar.ok()) << pattern;
  }
  EXPECT_EQ(grammar_of("a(?=b)").error().message, "lookaround is not supported, at byte 2 of the pattern");
}

TEST(Regex, length_limits_narrow_the_one_variable_part) {
  struct Limited {
    std::string_view pattern;
    LengthLimits limits;
    std::vector<std::string_view> accepted, rejected;
  };
  const Limited kCases[] = {
      {"^a*$", {.min = 2, .max = 3}, {"aa", "aaa"}, {"", "a", "aaaa"}},
      {"^a*$", {.min = 2}, {"aa", "aaaaaa"}, {"", "a"}},
      {"^x(ab)+y$", {.min = 5, .max = 7}, {"xababy"}, {"xaby", "xabababy"}},
      {"^(a|bcd|e{4,9})$", {.min = 2, .max = 5}, {"bcd", "eeee", "eeeee"}, {"a", "eeeeee"}},
      {"^a{2,4}$", {.min = 1, .max = 9}, {"aa", "aaaa"}, {"a"}},
      {"^[a-z]+(-[a-z]+)*$", {.min = 1}, {"a", "a-b"}, {""}},
  };
  for (const auto& [pattern, limits, accepted, rejected] : kCases) {
    Result<Grammar> grammar = grammar_of(pattern, limits);
    ASSERT_TRUE(grammar.ok()) << pattern << ": " << grammar.error().message;
    GrammarMatcher matcher(std::move(grammar.value()));
    for (const std::string_view text : accepted)
      EXPECT_TRUE(matcher.matches(text)) << pattern << " should match " << text;
    for (const std::string_view text : rejected)
      EXPECT_FALSE(matcher.matches(text)) << pattern << " should not match " << text;
  }
  EXPECT_FALSE(grammar_of("^a+b+$", {.max = 5}).ok());
  EXPECT_FALSE(grammar_of("^(a|bbbb)$", {.min = 2, .max = 3}).ok());
  EXPECT_FALSE(grammar_of("^(ab)*$", {.min = 3, .max = 3}).ok());
  EXPECT_FALSE(grammar_of("^abc$", {.max = 2}).ok());
}

// Compared with std::regex, over texts of the characters that occur in the patterns.
TEST(Regex, random_patterns_agree_with_another_implementation) {
  std::mt19937 random(7);
  const auto pick = [&](std::string_view from) { return std::string(1, from[random() % from.size()]); };
  const std::function<std::string(int)> pattern_of = [&](int depth) -> std::string {
    switch (random() % (depth > 0 ? 6 : 3)) {
      case 0:
        return pick("abc");
      case 1:
        return "[" + std::string(random() % 3 ? "" : "^") + pick("ab") + pick("bc") + "]";
      case 2:
        return random() % 2 ? "\\w" : ".";
      case 3:
        return "(" + pattern_of(depth - 1) + "|" + pattern_of(depth - 1) + ")";
      case 4:
        return "(?:" + pattern_of(depth - 1) + ")" +
               std::vector<std::string>{"*", "+", "?", "{2}", "{1,}", "{0,2}"}[random() % 6];
      default:
        return pattern_of(depth - 1) + pattern_of(depth - 1);
    }
  };
  for (int round = 0; round < 300; ++round) {
    const std::string pattern = (random() % 2 ? "^" : "") + pattern_of(3) + (random() % 2 ? "$" : "");
    GrammarMatcher matcher(grammar_of(pattern).value());
    const std::regex other(pattern);
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (size_t n = random() % 7; n > 0; --n) text += pick("abcd");
      EXPECT_EQ(matcher.matches(text), std::regex_search(text, other)) << pattern << " in " << text;
    }
  }
}

}  // namespace
}  // namespace zinc
