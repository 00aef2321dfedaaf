#include "constrain/json_schema.h"

#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/grammar_matcher.h"

namespace zinc {
namespace {

Result<Grammar> grammar_of(std::string_view schema) {
  const Result<json::value> parsed = parse_json(schema);
  if (!parsed.ok()) ADD_FAILURE() << parsed.error().message << ": " << schema;
  return json_schema_grammar(parsed.value());
}

std::string error_of(std::string_view schema) {
  const Result<Grammar> grammar = grammar_of(schema);
  return grammar.ok() ? "" : grammar.error().message;
}

struct Case {
  std::string_view schema;
  std::vector<std::string_view> accepted, rejected;
};

void check(const std::vector<Case>& cases) {
  for (const auto& [schema, accepted, rejected] : cases) {
    Result<Grammar> grammar = grammar_of(schema);
    ASSERT_TRUE(grammar.ok()) << schema << ": " << grammar.error().message;
    GrammarMatcher matcher(std::move(grammar.value()));
    for (const std::string_view text : accepted)
      EXPECT_TRUE(matcher.matches(text)) << schema << " should match " << text;
    for (const std::string_view text : rejected)
      EXPECT_FALSE(matcher.matches(text)) << schema << " should not match " << text;
  }
}

TEST(JsonSchema, json_object_grammar_matches_any_json_object) {
  GrammarMatcher matcher(json_object_grammar().value());
  for (const char* text : {"{}", "{ }", "{\n  \"a\": 1,\n  \"b\": [true, null, -0.5e+9]\n}",
                           R"({"a":{"":"\u00e9\n"},"a":[]})", R"({"x":"\uD83D\uDE00 é 😀"})"}) {
    EXPECT_TRUE(matcher.matches(text)) << text;
  }
  for (const char* text : {"", " {}", "{} ", "[]", "1", "{a:1}", "{\"a\":01}", "{\"a\":1,}", "{  }", "{\"a\":\"\t\"}",
                           R"({"x":"\uD83D"})", R"({"x":"\uDE00"})", R"({"x":"\x"})", "{\"a\":.5}", "{\"a\":+1}",
                           "{\"a\":\"\xFF\"}", "{\n\n}", "{\"a\":tru}"}) {
    EXPECT_FALSE(matcher.matches(text)) << text;
  }
  EXPECT_TRUE(matcher.accepts_prefix(R"({"a":"\uD83D\u)"));
  EXPECT_FALSE(matcher.accepts_prefix(R"({"a":"\uD83D\n)"));
}

TEST(JsonSchema, white_space_and_digits_are_bounded) {
  GrammarMatcher matcher(grammar_of("{}").value());
  EXPECT_TRUE(matcher.matches("[\n" + std::string(20, ' ') + "1]"));
  EXPECT_FALSE(matcher.accepts_prefix("[\n" + std::string(21, ' ')));
  EXPECT_FALSE(matcher.accepts_prefix("[  "));
  EXPECT_TRUE(matcher.matches("-9999999999999999.9999999999999999E-99"));
  EXPECT_FALSE(matcher.accepts_prefix("12345678901234567"));
  EXPECT_FALSE(matcher.accepts_prefix("0.12345678901234567"));
  EXPECT_FALSE(matcher.accepts_prefix("1e100"));
}

TEST(JsonSchema, types_are_enforced) {
  check(
      {{"true", {"1", "null", "[1,{}]", "\"x\""}, {"", "x"}},
       {"{}", {"1", "null", "{}"}, {"nul"}},
       {R"({"type":"null"})", {"null"}, {"0", "\"null\""}},
       {R"({"type":"boolean"})", {"true", "false"}, {"1", "truefalse"}},
       {R"({"type":"string"})", {"\"\"", "\"a\\\"b\"", "\"\x7F\""}, {"a", "\"", "1", "\"\n\""}},
       {R"({"type":"integer"})", {"0", "-1", "9999999999999999"}, {"1.0", "-0", "01", "1e3", "-", "10000000000000000"}},
       {R"({"type":"number"})", {"0", "-0", "1.5", "1E5", "-1.25e-3"}, {"1.", ".1", "01", "1e", "--1"}},
       {R"({"type":["string","null"]})", {"null", "\"a\""}, {"1"}},
       {R"({"type":"string","nullable":true})", {"null", "\"a\""}, {"1"}},
       {R"({"type":"string","nullable":false})", {"\"a\""}, {"null"}},
       {R"({"type":"array"})", {"[]", "[1,\"a\"]"}, {"{}"}},
       {R"({"type":"object"})", {"{}", R"({"a":1})"}, {"[]"}}});
}

TEST(JsonSchema, integers_stay_within_their_bounds_exactly) {
  const std::pair<int, int> kBounds[] = {
      {0, 0},      {0, 9},  {1, 10}, {5, 5},     {7, 1024}, {-5, 5},  {-1000, -10}, {-99, 99}, {99, 101},  {100, 999},
      {-120, 120}, {-1, 0}, {0, 1},  {123, 987}, {-10, -9}, {-7, -7}, {8, 12},      {10, 19},  {-1200, 0}, {500, 1200}};
  for (const auto& [low, high] : kBounds) {
    GrammarMatcher matcher(
        grammar_of(fmt::format(R"({{"type":"integer","minimum":{},"exclusiveMaximum":{}}})", low, high + 1)).value());
    for (int i = -1300; i <= 1300; ++i) {
      EXPECT_EQ(matcher.matches(std::to_string(i)), low <= i && i <= high) << i << " in " << low << " .. " << high;
    }
    EXPECT_FALSE(matcher.matches("-0"));
    EXPECT_FALSE(matcher.matches("00"));
  }
}

TEST(JsonSchema, integer_bounds_cover_the_int64_range) {
  check({{R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})",
          {"-9223372036854775808", "9223372036854775807", "0"},
          {"-9223372036854775809", "9223372036854775808"}},
         {R"({"type":"integer","minimum":10000000000000000})",
          {"10000000000000000", "9223372036854775807"},
          {"9999999999999999", "9223372036854775808"}},
         {R"({"type":"integer","minimum":5})", {"5", "9999999999999999"}, {"4", "-5", "10000000000000000"}},
         {R"({"type":"integer","maximum":-5})", {"-5", "-9999999999999999"}, {"-4", "5", "0"}},
         {R"({"type":"integer","exclusiveMinimum":1.5,"maximum":3.9})", {"2", "3"}, {"1", "4"}},
         {R"({"type":"integer","minimum":-1e30,"maximum":18446744073709551615})",
          {"-9223372036854775808", "3"},
          {"1e3"}}});
  EXPECT_EQ(error_of(R"({"type":"integer","minimum":3,"maximum":2})"), "#: no integer satisfies the bounds");
  EXPECT_NE(error_of(R"({"type":"integer","minimum":1e19})"), "");
  EXPECT_NE(error_of(R"({"type":"integer","exclusiveMinimum":9223372036854775807})"), "");
  EXPECT_NE(error_of(R"({"type":"integer","exclusiveMaximum":-9223372036854775808})"), "");
  EXPECT_NE(error_of(R"({"type":"integer","minimum":0.1,"maximum":0.9})"), "");
  check({{R"({"type":"integer","minimum":5,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":true})",
          {"6", "8"},
          {"5", "9"}},
         {R"({"type":"number","minimum":5,"exclusiveMinimum":false})", {"5", "5.5"}, {"4.9"}}});
}

TEST(JsonSchema, numbers_stay_within_their_bounds) {
  check({{R"({"type":"number","minimum":0})", {"0", "0.0", "12.5", "9999999999999997"}, {"-1", "-0", "1e5"}},
         {R"({"type":"number","exclusiveMinimum":0})", {"0.001", "1"}, {"0", "0.0", "-1"}},
         {R"({"type":"number","minimum":0,"maximum":1})",
          {"0", "0.5", "1", "1.0", "1.000"},
          {"1.1", "1.0001", "-0.1", "2"}},
         {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
          {"0.5", "0.999", "0.01"},
          {"0", "1", "1.0", "0.00"}},
         {R"({"type":"number","minimum":-2.5,"maximum":10.25})",
          {"-2.5", "-2.500", "-2.49", "-2", "-0.1", "0", "10.25", "10.249", "9.9", "10"},
          {"-2.51", "-3", "10.251", "10.3", "11", "100"}},
         {R"({"type":"number","minimum":0.000001})", {"0.000001", "0.0000011", "3"}, {"0", "0.0000009", "-1"}},
         {R"({"type":"number","maximum":-0.5})", {"-0.5", "-0.51", "-7"}, {"-0.49", "0", "0.5", "-0"}},
         {R"({"type":"number","minimum":1.25,"maximum":1.75})",
          {"1.25", "1.3", "1.75", "1.7499"},
          {"1", "1.2", "1.2499", "1.76", "2"}}});
  EXPECT_EQ(error_of(R"({"type":"number","minimum":2,"maximum":1})"), "#: no number satisfies the bounds");
  EXPECT_NE(error_of(R"({"type":"number","minimum":1e-20})"), "");
}

TEST(JsonSchema, random_decimals_match_exactly_if_they_satisfy_the_bounds) {
  std::mt19937 random(1);
  const auto decimal = [&] {
    return static_cast<double>(static_cast<int>(random() % 4001) - 2000) / (random() % 2 ? 100 : 10);
  };
  for (int round = 0; round < 60; ++round) {
    double low = decimal(), high = decimal();
    if (low > high) std::swap(low, high);
    const bool is_open = random() % 2 && low < high;
    const char* const schema_format = is_open ? R"({{"type":"number","exclusiveMinimum":{},"exclusiveMaximum":{}}})"
                                              : R"({{"type":"number","minimum":{},"maximum":{}}})";
    GrammarMatcher matcher(grammar_of(fmt::format(fmt::runtime(schema_format), low, high)).value());
    for (int i = 0; i < 400; ++i) {
      const double x = i == 0 ? low : i == 1 ? high : decimal();
      if (x == 0) continue;
      const bool is_within = is_open ? low < x && x < high : low <= x && x <= high;
      EXPECT_EQ(matcher.matches(fmt::format("{}", x)), is_within) << x << " in " << low << " .. " << high << is_open;
      EXPECT_EQ(matcher.matches(fmt::format("{:.3f}", x)), is_within)
          << x << " in " << low << " .. " << high << is_open;
    }
  }
}

TEST(JsonSchema, properties_come_in_order_and_in_any_subset) {
  check({{R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},"c":true},"required":["b"]})",
          {R"({"b":null})", R"({"a":1,"b":null})", R"({"b":null,"c":[]})", R"({ "a" : 1 , "b" : null , "c" : 2 })",
           "{\n\t\"a\": 1,\n\t\"b\": null\n}"},
          {"{}", R"({"a":1})", R"({"b":null,"a":1})", R"({"b":null,})", R"({,"b":null})", R"({"b":null,"d":1})",
           R"({"b":null,"b":null})", R"({"b":1})"}},
         {R"({"properties":{"a":{},"b":{}}})",
          {"{}", "{ }", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
          {"1", R"({"b":1,"a":1})"}},
         {R"({"type":"object","properties":{"a\"\n":{"const":1}},"required":["a\"\n"]})",
          {R"({"a\"\n":1})"},
          {R"({"a":1})"}},
         {R"({"type":"object","required":["z"]})", {R"({"z":1})", R"({"z":1,"y":2})"}, {"{}", R"({"y":1})"}},
         {R"({"properties":{"a":{}},"required":["z","a","a"]})", {R"({"a":1,"z":2})"}, {R"({"a":1})"}},
         {R"({"type":"object","properties":{}})", {"{}"}, {R"({"a":1})"}},
         {R"({"type":"object","properties":{"a":false,"b":true}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}}});
}

TEST(JsonSchema, additional_properties_come_last_and_never_repeat_a_declared_name) {
  check(
      {{R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
       {R"({"type":"object","additionalProperties":{"type":"integer"}})", {"{}", R"({"a":1,"b":2})"}, {R"({"a":""})"}},
       {R"({"properties":{"ab":{"type":"null"},"abc":{},"é":{}},"additionalProperties":{"type":"integer"}})",
        {"{}", R"({"ab":null})", R"({"a":1})", R"({"":1})", R"({"abcd":1})", R"({"ab":null,"x":1,"y":2})", R"({"è":1})",
         R"({"b":1})", R"({"é":"","😀":1})"},
        {R"({"ab":1})", R"({"x":1,"ab":null})", R"({"x":1,"ab":1})", R"({"abc":null,"abc":1})", R"({"x":null})",
         R"({"a\u0062":1})", R"({"x":1,"é":1})"}},
       {R"({"properties":{"a":{"const":1}},"required":["a"],"additionalProperties":true})",
        {R"({"a":1})", R"({"a":1,"b":{}})"},
        {R"({"b":{}})", R"({"b":{},"a":1})"}}});
}

TEST(JsonSchema, arrays_enforce_elements_and_counts) {
  check(
      {{R"({"type":"array","items":{"type":"integer"}})",
        {"[]", "[ ]", "[1]", "[1, 2,\n 3]"},
        {"[\"a\"]", "[1,]", "[,1]"}},
       {R"({"items":{"const":1},"minItems":1})", {"[1]", "[1,1,1,1,1]"}, {"[]"}},
       {R"({"items":{"const":1},"maxItems":2})", {"[]", "[1]", "[1,1]"}, {"[1,1,1]"}},
       {R"({"items":{"const":1},"minItems":2,"maxItems":3})", {"[1,1]", "[1,1,1]"}, {"[]", "[1]", "[1,1,1,1]"}},
       {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
       {R"({"type":"array","minItems":2})", {"[1,\"\"]", "[1,2,3]"}, {"[1]"}},
       {R"({"prefixItems":[{"const":1},{"const":2}]})", {"[]", "[1]", "[1,2]"}, {"[2]", "[1,2,3]"}},
       {R"({"prefixItems":[{"const":1},{"const":2}],"minItems":3})", {"[1,2,3]"}, {"[1,2]", "[1,2,3,4]"}},
       {R"({"prefixItems":[{"const":1},{"const":2}],"items":{"const":3}})", {"[1,2]", "[1,2,3,3]"}, {"[1,2,2]"}},
       {R"({"prefixItems":[{"const":1}],"items":false,"minItems":1})", {"[1]"}, {"[]", "[1,1]"}},
       {R"({"items":[{"const":1},{"const":2}],"additionalItems":{"const":3}})", {"[1]", "[1,2,3]"}, {"[3]", "[1,2,2]"}},
       {R"({"items":[{"const":1}],"additionalItems":false})", {"[]", "[1]"}, {"[1,1]"}},
       {R"({"prefixItems":[{"const":1},{"const":2}],"maxItems":1})", {"[]", "[1]"}, {"[1,2]"}},
       {R"({"items":false})", {"[]"}, {"[1]"}},
       {R"({"prefixItems":[]})", {"[]", "[1]"}, {"1"}}});
  EXPECT_EQ(error_of(R"({"items":{},"minItems":3,"maxItems":2})"), "#: \"minItems\" is greater than \"maxItems\"");
  EXPECT_NE(error_of(R"({"items":false,"minItems":1})"), "");
}

TEST(JsonSchema, enum_values_match_their_compact_json) {
  check({{R"({"enum":["a",1,null,{"b":[1,2.5]},"é\n"]})",
          {"\"a\"", "1", "null", R"({"b":[1,2.5]})", "\"é\\n\""},
          {"a", "\"b\"", "2", R"({"b": [1,2.5]})"}},
         {R"({"const":"x"})", {"\"x\""}, {"\"\""}},
         {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
         {R"({"enum":["a","b","c"],"const":"b"})", {"\"b\""}, {"\"a\""}},
         {R"({"enum":["a","bcd"],"minLength":2})", {"\"bcd\""}, {"\"a\""}},
         {R"({"enum":[1,5,9],"minimum":3,"exclusiveMaximum":9})", {"5"}, {"1", "9"}},
         {R"({"type":"string","enum":["a"],"nullable":true})", {"\"a\"", "null"}, {"\"b\""}}});
  EXPECT_EQ(error_of(R"({"enum":[]})"), "#: \"enum\" and \"const\" allow no value");
  EXPECT_EQ(error_of(R"({"type":"integer","enum":["a"]})"),
            "#: no value of \"enum\" or \"const\" satisfies the other keywords");
}

TEST(JsonSchema, any_of_and_one_of_match_any_of_their_schemas) {
  check({{R"({"anyOf":[{"type":"integer"},{"type":"string"}]})", {"1", "\"\""}, {"null"}},
         {R"({"oneOf":[{"const":1},{"const":2}],"title":"t"})", {"1", "2"}, {"3"}},
         {R"({"type":"object","properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
          {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1})"},
          {"{}"}},
         {R"({"type":"integer","anyOf":[{"minimum":10},{"maximum":-10}],"oneOf":[{"maximum":20},{"minimum":0}]})",
          {"10", "20", "21", "-10"},
          {"9", "0", "-9"}}});
}

TEST(JsonSchema, all_of_is_merged) {
  check(
      {{R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"null"}},"required":["b"]}]})",
        {R"({"a":1,"b":null})"},
        {R"({"a":1})", R"({"b":null})", R"({"a":1,"b":null,"c":1})"}},
       {R"({"allOf":[{"properties":{"a":{"minimum":3}}},{"properties":{"a":{"type":"integer","maximum":5}}}]})",
        {R"({"a":3})", R"({"a":5})", "{}"},
        {R"({"a":2})", R"({"a":6})"}},
       {R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"integer"},"allOf":[{"properties":{"b":{"minimum":7}}}]})",
        {R"({"a":"","b":7,"c":1})"},
        {R"({"b":6})", R"({"b":""})"}},
       {R"({"type":["integer","null"],"allOf":[{"type":["number","string"]},{"minimum":2}]})",
        {"2"},
        {"null", "1", "2.5"}},
       {R"({"minLength":2,"allOf":[{"maxLength":3},{"type":"string"},true]})", {"\"ab\""}, {"\"a\"", "\"abcd\"", "1"}},
       {R"({"allOf":[{"items":{"type":"integer"}},{"prefixItems":[{"minimum":3}],"items":true}]})",
        {"[3,1]", "[]"},
        {"[2]"}},
       {R"({"allOf":[{"anyOf":[{"enum":[1,2]},{"const":3}]},{"enum":[2,3]}]})", {"2", "3"}, {"1"}}});
}

TEST(JsonSchema, references_may_point_anywhere_in_the_schema) {
  check(
      {{R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"integer"}}})", {"1"}, {"\"\""}},
       {R"({"$ref":"#/definitions/a~1b~0%20c","definitions":{"a/b~ c":{"const":1}}})", {"1"}, {"2"}},
       {R"({"anyOf":[{"const":1},{"type":"array","items":{"$ref":"#/anyOf/0"}}]})", {"1", "[1,1]"}, {"[[]]"}},
       {R"({"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"]})",
        {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
        {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
       {R"({"$ref":"#/$defs/n","minimum":3,"$defs":{"n":{"type":"integer","maximum":4}}})", {"3", "4"}, {"2", "5"}},
       {R"({"$defs":{"t":{"properties":{"k":{"type":"array","items":{"$ref":"#/$defs/t"}}}}},"$ref":"#/$defs/t"})",
        {"{}", R"({"k":[{},{"k":[]}]})"},
        {R"({"k":1})"}}});
  for (const char* schema :
       {R"({"$ref":"#"})", R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
        R"({"allOf":[{"$ref":"#"}]})", R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})",
        R"({"type":"null","anyOf":[{"$ref":"#"},{"type":"null"}]})"}) {
    EXPECT_TRUE(error_of(schema).ends_with("circular $ref")) << error_of(schema);
  }
  EXPECT_EQ(error_of(R"({"items":{"$ref":"#/$defs/x"}})"), "#/items: \"$ref\" #/$defs/x does not exist in this schema");
  EXPECT_NE(error_of(R"({"$ref":"http://x/y"})"), "");
  EXPECT_NE(error_of(R"({"$ref":5})"), "");
}

TEST(JsonSchema, schema_without_finite_documents_is_rejected) {
  EXPECT_EQ(error_of(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"),
            "the grammar matches no text: its rule '#' never terminates");
  check(
      {{R"({"properties":{"a":{"$ref":"#/$defs/x"},"b":{}},"$defs":{"x":{"items":{"$ref":"#/$defs/x"},"minItems":1}}})",
        {"{}", R"({"b":1})"},
        {}}});
  GrammarMatcher matcher(
      grammar_of(
          R"({"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"items":{"$ref":"#/$defs/x"},"minItems":1}}})")
          .value());
  EXPECT_FALSE(matcher.accepts_prefix("{\""));
}

TEST(JsonSchema, strings_enforce_length_pattern_and_format) {
  check({{R"({"minLength":1,"maxLength":3})",
          {"\"a\"", "\"é😀\\n\"", R"("\ud83d\ude00ab")"},
          {"\"\"", "\"abcd\"", R"("\ud83d\ude00abc")"}},
         {R"({"type":"string","minLength":2})", {"\"ab\"", "\"abcdefgh\""}, {"\"a\""}},
         {R"({"pattern":"^a+$"})", {"\"aa\""}, {"\"\"", "\"ab\""}},
         {R"({"pattern":"^a+$","minLength":2,"maxLength":3})", {"\"aa\"", "\"aaa\""}, {"\"a\"", "\"aaaa\""}},
         {R"({"type":"string","format":"date"})",
          {"\"2024-02-29\"", "\"1999-12-31\"", "\"2000-02-29\""},
          {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"", "\"24-01-01\""}},
         {R"({"type":"string","format":"time"})",
          {"\"23:59:59Z\"", "\"00:00:00.25+01:30\""},
          {"\"24:00:00Z\"", "\"10:00:00\""}},
         {R"({"type":"string","format":"date-time"})",
          {"\"2024-01-01T00:00:00Z\""},
          {"\"2024-01-01\"", "\"2024-01-01 00:00:00Z\""}},
         {R"({"type":"string","format":"uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""}},
         {R"({"type":"string","format":"email","maxLength":255})",
          {"\"a.b@example.co.uk\"", "\"x@y.de\""},
          {"\"x@y\"", "\"@y.de\"", "\"a b@c.de\""}},
         {R"({"type":"string","format":"ipv4"})",
          {"\"127.0.0.1\"", "\"255.255.255.255\""},
          {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
         {R"({"type":"string","format":"ipv6"})",
          {"\"::\"", "\"::1\"", "\"2001:db8::8a2e:370:7334\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::\""},
          {"\"1:2:3\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\""}},
         {R"({"type":"string","format":"duration"})",
          {"\"P1Y2M3D\"", "\"PT1H30M\"", "\"P2W\"", "\"P1DT12H\"", "\"PT5S\""},
          {"\"P\"", "\"PT\"", "\"P1H\"", "\"1D\"", "\"P1DT\""}},
         {R"({"type":"string","format":"hostname","maxLength":253})",
          {"\"example.com\"", "\"a\""},
          {"\"-a\"", "\"a..b\"", "\"\""}},
         {R"({"type":"string","format":"anything"})", {"\"x\""}, {"1"}},
         {R"({"format":"anything"})", {"\"x\"", "1"}, {}}});
  EXPECT_EQ(error_of(R"-({"properties":{"a":{"pattern":"(?=x)"}}})-"),
            "#/properties/a: \"pattern\": lookaround is not supported, at byte 1 of the pattern");
  EXPECT_NE(error_of(R"({"minLength":3,"maxLength":2})"), "");
  EXPECT_NE(error_of(R"({"pattern":"^aa$","minLength":3})"), "");
  EXPECT_NE(error_of(R"({"pattern":5})"), "");
}

TEST(JsonSchema, unsupported_keyword_is_rejected_with_name_and_path) {
  EXPECT_EQ(error_of(R"({"properties":{"a":{"not":{}}}})"), "#/properties/a: \"not\" is not supported");
  EXPECT_EQ(error_of(R"({"items":[{"anyOf":[{"if":true}]}]})"), "#/items/0/anyOf/0: \"if\" is not supported");
  for (const char* keyword :
       {R"("not":{})", R"("if":{})", R"("then":{})", R"("else":{})", R"("patternProperties":{"a":{}})",
        R"("dependentRequired":{"a":["b"]})", R"("dependentSchemas":{"a":{}})", R"("contains":{})",
        R"("unevaluatedItems":false)", R"("unevaluatedProperties":false)", R"("dependencies":{"a":["b"]})",
        R"("$dynamicRef":"#a")"}) {
    const std::string name(keyword, std::string_view(keyword).find(':'));
    EXPECT_EQ(error_of(fmt::format("{{{}}}", keyword)), fmt::format("#: {} is not supported", name));
  }
  EXPECT_EQ(error_of(R"({"uniqueItems":false,"minProperties":0,"title":"","description":"","default":1,"examples":[],
                        "$schema":"","$id":"","$comment":"","deprecated":true,"readOnly":true,"contentMediaType":"x","x-y":1})"),
            "");
}

TEST(JsonSchema, multiples_are_exact) {
  check({{R"({"type":"integer","multipleOf":3})", {"0", "-3", "9", "999999999999999"}, {"1", "10", "3.0", "-4"}},
         {R"({"type":"integer","multipleOf":7,"minimum":10,"maximum":30})", {"14", "21", "28"}, {"7", "35", "15"}},
         {R"({"type":"integer","multipleOf":500,"minimum":-1000})", {"-1000", "-500", "0", "123500"}, {"-1500", "50"}},
         {R"({"type":"number","multipleOf":0.5})", {"0", "1", "0.5", "-12.0", "7.5"}, {"0.25", "1.1"}},
         {R"({"type":"number","multipleOf":0.01,"minimum":0,"maximum":5})",
          {"0.07", "4.99", "5", "5.00"},
          {"5.01", "0.001"}},
         {R"({"enum":[1,2,3,4],"multipleOf":2})", {"2", "4"}, {"1", "3"}}});
  EXPECT_NE(error_of(R"({"multipleOf":0})"), "");
  EXPECT_NE(error_of(R"({"type":"integer","multipleOf":1000003})"), "") << "not bounded";
}

TEST(JsonSchema, members_are_counted_and_their_names_are_constrained) {
  check({{R"({"type":"object","additionalProperties":{"const":1},"minProperties":1,"maxProperties":2})",
          {R"({"a":1})", R"({"a":1,"b":1})"},
          {"{}", R"({"a":1,"b":1,"c":1})"}},
         {R"({"properties":{"a":{},"b":{},"c":{}},"maxProperties":1})", {"{}", R"({"b":1})"}, {R"({"a":1,"b":1})"}},
         {R"({"propertyNames":{"type":"string"},"additionalProperties":{"const":1}})", {"{}", R"({"any":1})"}, {}},
         {R"({"propertyNames":{"enum":["x","y"]},"additionalProperties":{"const":1}})",
          {R"({"x":1})", R"({"y":1})"},
          {R"({"z":1})"}},
         {R"({"propertyNames":{"pattern":"^a"},"properties":{"ab":{"const":1},"b":{}},"additionalProperties":true})",
          {R"({"ab":1})", "{}"},
          {R"({"b":1})"}}});
  EXPECT_NE(error_of(R"({"propertyNames":{"maxLength":1},"required":["ab"]})"), "");
}

TEST(JsonSchema, unique_elements_of_an_enumeration_are_enforced) {
  check({{R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":1})",
          {R"(["a"])", R"(["a", "c"])", R"(["a","b","c"])"},
          {"[]", R"(["a","a"])", R"(["a","b","a"])"}},
         {R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})", {"[]", "[1,2]"}, {R"(["a"])"}}});
}

TEST(JsonSchema, keywords_that_are_not_enforced_are_named) {
  const auto unenforced_of = [](std::string_view schema) { return grammar_of(schema).value().unenforced; };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(
      unenforced_of(R"({"properties":{"a":{"type":"array","items":{"type":"integer"},"uniqueItems":true}}})"),
      Texts{"#/properties/a: \"uniqueItems\" is not enforced: the elements have no \"enum\", \"const\" or boolean "
            "type"});
  const Texts overlap = {"#: \"oneOf\" is treated as \"anyOf\": its options may overlap"};
  EXPECT_EQ(unenforced_of(R"({"oneOf":[{"type":"integer"},{"type":"number","minimum":3}]})"), overlap);
  EXPECT_EQ(unenforced_of(R"({"type":"integer","oneOf":[{"minimum":3},{"maximum":9}]})"), overlap) << "once";
  EXPECT_EQ(unenforced_of(R"({"oneOf":[{"const":1},{"enum":[2,1.0]}]})"), overlap);
  EXPECT_EQ(unenforced_of(R"({"oneOf":[{"type":"string","nullable":true},{"type":"integer","nullable":true}]})"),
            overlap);
  EXPECT_EQ(unenforced_of(R"({"oneOf":[{"properties":{"k":{"const":1}}},{"properties":{"k":{"const":2}}}]})"), overlap)
      << "the discriminator is not required";
  for (
      const char* disjoint :
      {R"({"oneOf":[{"type":"string"},{"type":["integer","null"]},{"$ref":"#/$defs/b"}],"$defs":{"b":{"type":"object"}}})",
       R"({"oneOf":[{"const":"a"},{"enum":["b","c"]}]})",
       R"({"oneOf":[{"properties":{"k":{"const":1}},"required":["k"]},{"properties":{"k":{"const":2}},"required":["k"]}]})",
       R"({"type":"array","items":{"enum":[1,2]},"uniqueItems":true})", R"({"uniqueItems":true,"maxItems":1})",
       R"({"anyOf":[{"minimum":3},{"maximum":9}]})"}) {
    EXPECT_EQ(unenforced_of(disjoint), Texts()) << disjoint;
  }
}

TEST(JsonSchema, large_length_limits_are_accepted) {
  check({{R"({"type":"string","maxLength":1000000})", {R"("abc")"}, {"1"}},
         {R"({"type":"array","items":{"const":1},"maxItems":70000})", {"[1,1]"}, {"[2]"}}});
  EXPECT_NE(error_of(R"({"type":"string","minLength":1000000})"), "");
}

TEST(JsonSchema, unsatisfiable_or_invalid_schema_is_rejected) {
  for (const char* schema : {"false",
                             "1",
                             "null",
                             "[]",
                             R"({"type":"text"})",
                             R"({"type":[]})",
                             R"({"type":5})",
                             R"({"enum":5})",
                             R"({"anyOf":[]})",
                             R"({"anyOf":{}})",
                             R"({"allOf":5})",
                             R"({"properties":[]})",
                             R"({"required":"a"})",
                             R"({"required":[1]})",
                             R"({"properties":{"a":1}})",
                             R"({"minItems":-1})",
                             R"({"minItems":1.5})",
                             R"({"maxLength":"x"})",
                             R"({"minimum":"x"})",
                             R"({"prefixItems":5})",
                             R"({"format":5})",
                             R"({"allOf":[{"type":"string"},{"type":"integer"}]})",
                             R"({"properties":{"a":false},"required":["a"]})",
                             R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})",
                             R"({"enum":["a"],"pattern":"b"})",
                             R"({"required":["b"],"additionalProperties":false})"}) {
    EXPECT_NE(error_of(schema), "") << schema;
  }
}

std::string joined(int n, const std::function<std::string(int)>& part) {
  std::string out;
  for (int i = 0; i < n; ++i) out += (i ? "," : "") + part(i);
  return out;
}

TEST(JsonSchema, hostile_schemas_are_processed_in_bounded_time) {
  const auto chain = [](int n, std::string_view schema_format) {
    return R"({"$ref":"#/$defs/d0","$defs":{)" +
           joined(n,
                  [&](int i) {
                    return fmt::format("\"d{}\":", i) +
                           fmt::format(fmt::runtime(schema_format), fmt::format("{{\"$ref\":\"#/$defs/d{}\"}}", i + 1));
                  }) +
           fmt::format(",\"d{}\":{{\"type\":\"null\"}}}}}}", n);
  };
  const std::vector<std::string> schemas = {
      R"({"items":{},"minItems":1000000000})",
      R"({"items":{},"maxItems":1000000000})",
      R"({"maxLength":1000000000})",
      R"({"minLength":1e300})",
      R"({"pattern":"((a{16000}){16000}){16000}"})",
      R"({"maxItems":16384,"minItems":16000,"items":{}})",
      R"({"prefixItems":[)" + joined(20000, [](int) { return "{}"; }) + "]}",
      R"({"enum":[)" + joined(100000, [](int i) { return std::to_string(i); }) + "]}",
      R"({"enum":[)" + joined(20000, [](int i) { return fmt::format("\"value {}\"", i); }) + "]}",
      R"({"required":[)" + joined(20000, [](int i) { return fmt::format("\"n{}\"", i); }) + "]}",
      R"({"allOf":[)" + joined(5000, [](int) { return R"({"minItems":10000,"prefixItems":[{},{}]})"; }) + "]}",
      R"({"allOf":[)" +
          joined(16, [](int) { return R"({"anyOf":[{"minLength":1},{"minLength":2},{"type":"string"}]})"; }) + "]}",
      R"({"properties":{)" + joined(5000, [](int i) { return fmt::format("\"n{}\":{{}}", i); }) +
          R"(},"additionalProperties":true})",
      R"({"properties":{")" + std::string(100000, 'a') + R"(":{}},"additionalProperties":true})",
      chain(50000, R"({{"items":{}}})"),
      chain(50000, R"({{"anyOf":[{}]}})"),
      chain(50000, R"({{"allOf":[{}]}})"),
      chain(50000, "{}"),
      chain(40, R"({{"allOf":[{0},{{"title":"x","allOf":[{0}]}}]}})"),
      chain(40, R"({{"allOf":[{0},{0}]}})"),
      chain(40, R"({{"anyOf":[{0},{0}]}})"),
      chain(40, R"({{"title":"","properties":{{"a":{0},"b":{0}}}}})"),
      chain(3000, R"({{"allOf":[{{"properties":{{"a":{0}}}}},{{"properties":{{"a":{{"$ref":"#"}}}}}}]}})"),
      R"({"pattern":")" + std::string(1000, '(') + R"("})",
      R"({"pattern":")" + std::string(30000, '.') + R"("})"};
  for (const std::string& schema : schemas) {
    const Result<json::value> parsed = parse_json(schema);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message << schema.substr(0, 200);
    const std::clock_t begin = std::clock();
    const Result<Grammar> grammar = json_schema_grammar(parsed.value());
    const double cpu_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_LT(cpu_s, 5) << schema.substr(0, 200);
    if (!grammar.ok()) continue;
    GrammarMatcher matcher(grammar.value());
    matcher.automaton().set_work_budget(1 << 20);
    for (const char* begin_of : {"{", "[", "\"a", "nu"}) matcher.accepts_prefix(begin_of);
  }
}

TEST(JsonSchema, schema_that_multiplies_its_parts_is_rejected_before_it_grows_large) {
  const auto repeated = [](std::string_view what, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += fmt::format("{}{}", i > 0 ? "," : "", what);
    return out;
  };
  const std::string cases[] = {
      fmt::format(R"({{"pattern": "^{}$", "anyOf": [{}]}})", std::string(3000, 'a'), repeated("{}", 40'000)),
      fmt::format(R"({{"enum": [{}], "anyOf": [{}]}})", repeated("\"abc\"", 1500), repeated("{}", 40'000)),
      fmt::format(R"({{"const": "{}", "anyOf": [{}]}})", std::string(1'000'000, 'a'), repeated("{}", 1000))};
  for (const std::string& schema : cases) {
    const Result<Grammar> grammar = json_schema_grammar(parse_json(schema).value());
    ASSERT_FALSE(grammar.ok());
    EXPECT_NE(grammar.error().message.find("too large"), std::string::npos) << grammar.error().message;
  }
}

}  // namespace
}  // namespace zinc
