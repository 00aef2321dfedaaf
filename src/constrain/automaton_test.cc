#include "constrain/automaton.h"

#include <gtest/gtest.h>

#include "constrain/gbnf.h"
#include "tests/support/contains_all.h"

namespace zinc {
namespace {

enum class Match { full, prefix, none };

Match match(Automaton& automaton, std::string_view text) {
  Automaton::State state = automaton.start();
  for (const char byte : text) {
    if (state == Automaton::kDeadState) return Match::none;
    state = automaton.next(state, static_cast<uint8_t>(byte));
  }
  if (state == Automaton::kDeadState) return Match::none;
  return automaton.may_end(state) ? Match::full : Match::prefix;
}

struct Case {
  const char* grammar;
  std::vector<const char*> full, prefixes, none;
};

TEST(Gbnf, every_construct_matches_its_language_and_nothing_else) {
  const Case cases[] = {
      {R"(root ::= "a" "b")", {"ab"}, {"", "a"}, {"b", "abc", "aa"}},
      {R"(root ::= "a" | "bc" | )", {"a", "bc", ""}, {"b"}, {"ab", "c"}},
      {"root ::= \"a\"\n  | \"b\" |\n  \"c\"\n", {"a", "b", "c"}, {""}, {"d"}},
      {"root ::= ( \"a\"\n \"b\" ) # a comment | \"c\"\n# another", {"ab"}, {"a"}, {"c"}},
      {R"(root ::= [a-cx_-] [^a-c])", {"ad", "x!", "-é", "_😀"}, {"a"}, {"aa", "d"}},
      {R"(root ::= "x"* "y"+ "z"?)", {"y", "xxyyz", "yz"}, {"xx"}, {"xz", "yzz"}},
      {R"(root ::= "ab"{2} [0-9]{1,3} "c"{2,})", {"abab1cc", "abab123cccc"}, {"ab", "abab12c"}, {"abab1234", "aba1"}},
      {R"(root ::= ("a"? "b"?)*)", {"", "abba"}, {}, {"c"}},
      {R"(root ::= "\x41\u00e9\U0001F600\n\t\\\"")", {"Aé😀\n\t\\\""}, {"A\xC3"}, {"Ae"}},
      {R"(root ::= .)", {"a", "é", "한", "😀"}, {"\xE2\x82", "\xF0\x9F"}, {"ab", "\xFF", "\xED\xA0", "\xC0"}},
      {R"(root ::= [\u0400-\u04ff\U00010000-\U0010ffff])", {"Ж", "😀"}, {"\xD0"}, {"a", "é"}},
      {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"((", "(()"}, {")", "())"}},
      {"root ::= sum\nsum ::= term (\"+\" term)*\nterm ::= [0-9] | \"(\" sum \")\"",
       {"1", "1+2", "(1+(2+3))+4"},
       {"1+", "(1"},
       {"+", "1)", "()"}},
      // Two derivations of the same prefix.
      {"root ::= a | b\na ::= \"x\"* \"a\"\nb ::= \"x\" \"x\" \"b\"", {"xxb", "xxxa", "a"}, {"xxx"}, {"xb", "xxxb"}},
      {"root ::= tail\ntail ::= \"a\" tail | empty\nempty ::= \"\"", {"", "aaa"}, {}, {"b"}},
  };
  for (const Case& each : cases) {
    Result<Grammar> grammar = parse_gbnf(each.grammar);
    ASSERT_TRUE(grammar.ok()) << each.grammar << ": " << grammar.error().message;
    Automaton automaton(std::move(grammar.value()));
    for (const char* text : each.full) EXPECT_EQ(match(automaton, text), Match::full) << each.grammar << ": " << text;
    for (const char* text : each.prefixes)
      EXPECT_EQ(match(automaton, text), Match::prefix) << each.grammar << ": " << text;
    for (const char* text : each.none) EXPECT_EQ(match(automaton, text), Match::none) << each.grammar << ": " << text;
    EXPECT_FALSE(automaton.budget_exceeded());
  }
}

TEST(Gbnf, errors_name_line_and_column) {
  const struct {
    const char* grammar;
    std::initializer_list<std::string_view> parts;
  } cases[] = {
      {"", {"no rule 'root'"}},
      {"a ::= \"b\"", {"no rule 'root'"}},
      {"root ::= thing", {"does not define the rule 'thing'"}},
      {"root = \"a\"", {"line 1, column 6", "::="}},
      {"root ::= \"a\"\nroot ::= \"b\"", {"line 2", "'root' is already defined"}},
      {"root ::= \"a", {"line 1, column 12", "unterminated string"}},
      {"root ::=\n [a", {"line 2, column 4", "unterminated character class"}},
      {"root ::= [z-a]", {"column 14", "end is before its start"}},
      {"root ::= \"\\q\"", {"unknown escape"}},
      {"root ::= \"\\ud800\"", {"not a valid Unicode code point"}},
      {"root ::= \"a\"{3,2}", {"less than the minimum"}},
      {"root ::= \"a\"{999999999}", {"over the limit of 100000"}},
      {"root ::= \"a\"**", {"column 14", "directly follows a repetition"}},
      {"root ::= \"a\"{2}?", {"directly follows a repetition"}},
      {"root ::= (\"a\"", {"expected )"}},
      {"root ::= \"a\" )", {"expected the end"}},
      {"root ::= \xFF", {"line 1, column 10"}},
      {"root ::= root \"a\" | \"a\"", {"'root'", "left-recursive"}},
      {"root ::= a \"x\"\na ::= b?  root | \"y\"\nb ::= \"b\"", {"left-recursive"}},
      {"root ::= a\na ::= \"x\" a", {"'root'", "never terminates"}},
      {"root ::= a{100000} a{100000} a{100000}\na ::= \"a\"", {"too large"}},
  };
  for (const auto& each : cases) {
    const Result<Grammar> grammar = parse_gbnf(each.grammar);
    ASSERT_FALSE(grammar.ok()) << each.grammar;
    EXPECT_TRUE(contains_all(grammar.error().message, each.parts)) << each.grammar;
  }
  EXPECT_TRUE(contains_all(parse_gbnf("root ::= " + std::string(100'000, '(')).error().message, {"nested too deeply"}));
  EXPECT_TRUE(contains_all(parse_gbnf("root ::= \"a\"" + std::string(100'000, '*')).error().message, {"repetition"}));
}

TEST(Automaton, repetition_returns_to_the_same_state) {
  Automaton automaton(std::move(parse_gbnf(R"(root ::= "\"" [^"]* "\"")").value()));
  Automaton::State inside = automaton.next(automaton.start(), '"');
  for (int i = 0; i < 1000; ++i) {
    for (const char byte : std::string_view("aé한😀")) inside = automaton.next(inside, static_cast<uint8_t>(byte));
  }
  EXPECT_EQ(inside, automaton.next(automaton.start(), '"'));
  EXPECT_LT(automaton.n_states(), 20u);
  EXPECT_TRUE(automaton.must_end(automaton.next(inside, '"')));
}

TEST(Automaton, exceeds_its_budget_on_an_ambiguous_grammar) {
  std::string grammar = "root ::= ";
  for (int i = 0; i < 300; ++i) grammar += "a* ";
  Automaton automaton(
      std::move(parse_gbnf(grammar + "\"x\"\na ::= b b? b?\nb ::= \"a\" c?\nc ::= \"a\" | b \"c\"?").value()));
  Automaton::State state = automaton.start();
  automaton.set_work_budget(1 << 20);
  for (int i = 0; i < 100'000 && state != Automaton::kDeadState; ++i) state = automaton.next(state, 'a');
  EXPECT_TRUE(automaton.budget_exceeded());
}

TEST(Automaton, exceeds_its_budget_on_many_paths_to_the_same_alternatives) {
  std::string grammar = "root ::= \"a\" (x";
  for (int i = 1; i < 2000; ++i) grammar += " | x";
  grammar += ")\nx ::= \"a\"";
  for (int i = 1; i < 2000; ++i) grammar += " | \"a\"";
  Automaton automaton(std::move(parse_gbnf(grammar).value()));
  automaton.set_work_budget(1 << 20);
  EXPECT_EQ(automaton.next(automaton.start(), 'a'), Automaton::kDeadState);
  EXPECT_TRUE(automaton.budget_exceeded());
  automaton.reset();
  EXPECT_FALSE(automaton.budget_exceeded());
}

}  // namespace
}  // namespace zinc
