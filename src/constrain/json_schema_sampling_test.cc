// Random texts sampled from schemas, each checked by an independent validator.
#include <gtest/gtest.h>

#include "constrain/json_schema.h"
#include "tests/support/grammar_matcher.h"
#include "tests/support/schema_validator.h"

namespace zinc {
namespace {

constexpr const char* kSchemas[] = {
    R"(true)",
    R"({"type":"string"})",
    R"({"type":"string","minLength":3,"maxLength":5})",
    R"({"type":"string","format":"date"})",
    R"({"type":"string","pattern":"^[A-Z]{2,3}-\\d+(\\.[a-f]*)?$"})",
    R"({"type":"string","pattern":"[aeiou]"})",
    R"({"type":"string","pattern":"^[^a-z0-9]*$","maxLength":6})",
    R"({"type":"integer"})",
    R"({"type":"integer","minimum":-1234,"maximum":98765})",
    R"({"type":"integer","exclusiveMinimum":99,"exclusiveMaximum":101})",
    R"({"type":"number"})",
    R"({"type":"number","minimum":-0.75,"exclusiveMaximum":12.125})",
    R"({"type":["number","null","boolean"],"exclusiveMinimum":0})",
    R"({"enum":["a","bc",1,null,{"x":[1,"\u0001\"\\"]}]})",
    R"({"type":"string","enum":["red","green"],"nullable":true})",
    R"({"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":4})",
    R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":1})",
    R"({"type":"array","prefixItems":[{"const":1},{"const":2},{"const":3}],"minItems":2})",
    R"({"type":"array"})",
    R"({"type":"object"})",
    R"({"type":"object","additionalProperties":{"type":"integer","minimum":0}})",
    R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"enum":[1,2]}},"required":["b"]})",
    R"({"type":"object","properties":{"a":{},"ab":{"const":1},"é":{"const":2}},"additionalProperties":{"const":3}})",
    R"({"type":"object","required":["x","y"],"properties":{"y":{"type":"null"}},"additionalProperties":{"type":"boolean"}})",
    R"({"anyOf":[{"type":"integer","minimum":5},{"type":"object","properties":{"k":{"const":"v"}},"required":["k"]}]})",
    R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
    R"({"allOf":[{"properties":{"a":{"minimum":3}},"required":["a"]},{"properties":{"a":{"type":"integer"},"b":{"type":"string"}}}]})",
    R"({"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"]})",
    R"({"$defs":{"t":{"type":"object","properties":{"n":{"type":"string","maxLength":3},"k":{"type":"array","items":{"$ref":"#/$defs/t"},"maxItems":2}},"required":["n"]}},"$ref":"#/$defs/t"})",
    R"({"$ref":"#/$defs/n","minimum":3,"$defs":{"n":{"type":"integer","maximum":40}}})",
    R"({"type":"integer","multipleOf":7})",
    R"({"type":"integer","multipleOf":12,"minimum":-1000,"maximum":123456})",
    R"({"type":"integer","multipleOf":1000,"minimum":0})",
    R"({"type":"number","multipleOf":0.25,"exclusiveMinimum":-3,"maximum":1000000})",
    R"({"type":"number","multipleOf":0.01,"minimum":0})",
    R"({"type":"integer","multipleOf":100003,"minimum":0,"maximum":99999999})",
    R"({"type":"array","items":{"enum":["a","b",3,null,"b"]},"uniqueItems":true,"minItems":2,"maxItems":3})",
    R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true})",
    R"({"type":"object","additionalProperties":{"type":"integer"},"propertyNames":{"type":"string","pattern":"^[a-z]{2,4}$"}})",
    R"({"type":"object","additionalProperties":{"type":"null"},"propertyNames":{"enum":["x","y","z"]},"required":["y"]})",
    R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3},"d":{"const":4}},"required":["c"],"minProperties":2,"maxProperties":3})",
    R"({"type":"object","additionalProperties":{"type":"boolean"},"propertyNames":{"maxLength":3},"minProperties":1})",
    R"({"type":"string","maxLength":100000})",
    R"({"type":"object","properties":{"name":{"type":"string","minLength":1},"age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":{"type":"string","pattern":"^[a-z]+$"},"maxItems":3},"score":{"type":"number","minimum":0,"maximum":1}},"required":["name","age","tags","score"],"additionalProperties":false})",
};

TEST(JsonSchema, sampled_text_satisfies_the_schema) {
  constexpr int kSamples = 1000;
  std::mt19937 random(3);
  for (const char* text : kSchemas) {
    const json::value schema = parse_json(text).value();
    Result<Grammar> grammar = json_schema_grammar(schema);
    ASSERT_TRUE(grammar.ok()) << text << ": " << grammar.error().message;
    std::optional<GrammarMatcher> matcher(grammar.value());
    const SchemaValidator validator(schema);
    int n_sampled = 0;
    for (int i = 0; i < kSamples; ++i) {
      if (matcher->automaton().n_states() > 10'000) matcher.emplace(grammar.value());
      matcher->automaton().set_work_budget(1 << 24);
      const std::optional<std::string> sampled = matcher->sample(random, random() % 60);
      ASSERT_FALSE(matcher->automaton().budget_exceeded()) << text;
      if (!sampled) continue;
      ++n_sampled;
      const Result<json::value> document = parse_json(*sampled);
      ASSERT_TRUE(document.ok()) << text << "\n" << *sampled << "\n" << document.error().message;
      EXPECT_TRUE(validator.holds(schema, document.value())) << text << "\n" << *sampled;
    }
    EXPECT_GT(n_sampled, kSamples * 9 / 10) << text;
  }
}

}  // namespace
}  // namespace zinc
