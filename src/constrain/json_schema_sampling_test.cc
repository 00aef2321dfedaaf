// Random texts sampled from schemas, each checked by an independent validator.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <regex>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "constrain/json_schema.h"
#include "tests/support/grammar_matcher.h"

namespace zinc {
namespace {

bool is_of_type(const json::value& value, std::string_view type) {
  if (type == "integer") return value.is_int64() || value.is_uint64();
  return type == "null"      ? value.is_null()
         : type == "boolean" ? value.is_bool()
         : type == "object"  ? value.is_object()
         : type == "array"   ? value.is_array()
         : type == "string"  ? value.is_string()
                             : type == "number" && value.is_number();
}

int64_t n_chars(std::string_view text) {
  int64_t n = 0;
  for (; !text.empty(); ++n) text.remove_prefix(static_cast<size_t>(next_utf8(text).n_bytes));
  return n;
}

bool is_date(std::string_view text) {
  int year = 0;
  unsigned month = 0, day = 0;
  const int n_read = std::sscanf(std::string(text).c_str(), "%4d-%2u-%2u", &year, &month, &day);
  return text.size() == 10 && n_read == 3 &&
         std::chrono::year_month_day(std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)).ok();
}

class Validator {
 public:
  explicit Validator(const json::value& root) : root_(root) {}

  bool holds(const json::value& schema, const json::value& value) const {
    if (schema.is_bool()) return schema.get_bool();
    const json::object& s = schema.get_object();
    if (const auto* nullable = s.if_contains("nullable"); nullable && *nullable == true && value.is_null()) return true;
    return holds_in_general(s, value) && (!value.is_string() || holds_as_string(s, value)) &&
           (!value.is_number() || holds_as_number(s, value)) &&
           (!value.is_array() || holds_as_array(s, value.get_array())) &&
           (!value.is_object() || holds_as_object(s, value.get_object()));
  }

 private:
  bool holds_in_general(const json::object& s, const json::value& value) const {
    if (const auto* type = s.if_contains("type")) {
      const json::array types = type->is_array() ? type->get_array() : json::array{*type};
      if (!std::ranges::any_of(types, [&](const auto& t) { return is_of_type(value, t.get_string()); })) return false;
    }
    if (const auto* list = s.if_contains("enum")) {
      if (std::ranges::find(list->get_array(), value) == list->get_array().end()) return false;
    }
    if (const auto* one = s.if_contains("const"); one && *one != value) return false;
    for (const char* name : {"anyOf", "oneOf"}) {
      const auto* list = s.if_contains(name);
      if (list && !std::ranges::any_of(list->get_array(), [&](const auto& each) { return holds(each, value); }))
        return false;
    }
    if (const auto* list = s.if_contains("allOf")) {
      if (!std::ranges::all_of(list->get_array(), [&](const auto& each) { return holds(each, value); })) return false;
    }
    const auto* reference = s.if_contains("$ref");
    return !reference || holds(root_.at_pointer(reference->get_string().subview(1)), value);
  }

  bool holds_as_string(const json::object& s, const json::value& value) const {
    const std::string text(value.get_string());
    if (const auto* min = s.if_contains("minLength"); min && n_chars(text) < min->get_int64()) return false;
    if (const auto* max = s.if_contains("maxLength"); max && n_chars(text) > max->get_int64()) return false;
    if (const auto* format = s.if_contains("format"); format && *format == "date" && !is_date(text)) return false;
    const auto* pattern = s.if_contains("pattern");
    return !pattern || std::regex_search(text, std::regex(std::string(pattern->get_string())));
  }

  bool holds_as_number(const json::object& s, const json::value& value) const {
    const auto number = value.to_number<double>();
    const auto bound = [&](const char* name, double default_value) {
      const auto* found = s.if_contains(name);
      return found ? found->to_number<double>() : default_value;
    };
    return number >= bound("minimum", -INFINITY) && number <= bound("maximum", INFINITY) &&
           number > bound("exclusiveMinimum", -INFINITY) && number < bound("exclusiveMaximum", INFINITY);
  }

  bool holds_as_array(const json::object& s, const json::array& array) const {
    const auto size = static_cast<int64_t>(array.size());
    if (const auto* min = s.if_contains("minItems"); min && size < min->get_int64()) return false;
    if (const auto* max = s.if_contains("maxItems"); max && size > max->get_int64()) return false;
    const auto* first = s.if_contains("prefixItems");
    const auto* items = s.if_contains("items");
    for (size_t i = 0; i < array.size(); ++i) {
      const bool is_first = first && i < first->get_array().size();
      if (is_first ? !holds(first->get_array()[i], array[i]) : items && !holds(*items, array[i])) return false;
    }
    return true;
  }

  bool holds_as_object(const json::object& s, const json::object& object) const {
    const auto* properties = s.if_contains("properties");
    const auto* rest = s.if_contains("additionalProperties");
    for (const auto& [name, member] : object) {
      const auto* schema = properties ? properties->get_object().if_contains(name) : nullptr;
      if (schema ? !holds(*schema, member) : rest && !holds(*rest, member)) return false;
    }
    const auto* required = s.if_contains("required");
    return !required || std::ranges::all_of(required->get_array(),
                                            [&](const auto& name) { return object.contains(name.get_string()); });
  }

  const json::value& root_;
};

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
    const Validator validator(schema);
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
