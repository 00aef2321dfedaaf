// For tests: checks a JSON value against a schema, independently of the grammars in constrain/. Knows the keywords that
// the tests use.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <regex>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"

namespace zinc {

inline bool is_of_type(const json::value& value, std::string_view type) {
  if (type == "integer") return value.is_int64() || value.is_uint64();
  return type == "null"      ? value.is_null()
         : type == "boolean" ? value.is_bool()
         : type == "object"  ? value.is_object()
         : type == "array"   ? value.is_array()
         : type == "string"  ? value.is_string()
                             : type == "number" && value.is_number();
}

inline int64_t n_chars_of(std::string_view text) {
  int64_t n = 0;
  for (; !text.empty(); ++n) text.remove_prefix(static_cast<size_t>(next_utf8(text).n_bytes));
  return n;
}

inline bool is_date(std::string_view text) {
  int year = 0;
  unsigned month = 0, day = 0;
  const int n_read = std::sscanf(std::string(text).c_str(), "%4d-%2u-%2u", &year, &month, &day);
  return text.size() == 10 && n_read == 3 &&
         std::chrono::year_month_day(std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)).ok();
}

class SchemaValidator {
 public:
  explicit SchemaValidator(const json::value& root) : root_(root) {}

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
    if (const auto* min = s.if_contains("minLength"); min && n_chars_of(text) < min->get_int64()) return false;
    if (const auto* max = s.if_contains("maxLength"); max && n_chars_of(text) > max->get_int64()) return false;
    if (const auto* format = s.if_contains("format"); format && *format == "date" && !is_date(text)) return false;
    const auto* pattern = s.if_contains("pattern");
    return !pattern || pattern->get_string().subview().find("\\p") != std::string_view::npos ||
           std::regex_search(text, std::regex(std::string(pattern->get_string())));
  }

  bool holds_as_number(const json::object& s, const json::value& value) const {
    const auto number = value.to_number<double>();
    const auto bound = [&](const char* name, double default_value) {
      const auto* found = s.if_contains(name);
      return found ? found->to_number<double>() : default_value;
    };
    if (const auto* divisor = s.if_contains("multipleOf")) {
      const double quotient = number / divisor->to_number<double>();
      if (std::fabs(quotient - std::round(quotient)) > 1e-9 * std::max(1.0, std::fabs(quotient))) return false;
    }
    return number >= bound("minimum", -INFINITY) && number <= bound("maximum", INFINITY) &&
           number > bound("exclusiveMinimum", -INFINITY) && number < bound("exclusiveMaximum", INFINITY);
  }

  bool holds_as_array(const json::object& s, const json::array& array) const {
    const auto size = static_cast<int64_t>(array.size());
    if (const auto* min = s.if_contains("minItems"); min && size < min->get_int64()) return false;
    if (const auto* max = s.if_contains("maxItems"); max && size > max->get_int64()) return false;
    if (const auto* unique = s.if_contains("uniqueItems"); unique && *unique == true) {
      for (size_t i = 0; i < array.size(); ++i) {
        if (std::find(array.begin(), array.begin() + static_cast<std::ptrdiff_t>(i), array[i]) !=
            array.begin() + static_cast<std::ptrdiff_t>(i))
          return false;
      }
    }
    const auto* first = s.if_contains("prefixItems");
    const auto* items = s.if_contains("items");
    for (size_t i = 0; i < array.size(); ++i) {
      const bool is_first = first && i < first->get_array().size();
      if (is_first ? !holds(first->get_array()[i], array[i]) : items && !holds(*items, array[i])) return false;
    }
    return true;
  }

  bool holds_as_object(const json::object& s, const json::object& object) const {
    const auto size = static_cast<int64_t>(object.size());
    if (const auto* min = s.if_contains("minProperties"); min && size < min->get_int64()) return false;
    if (const auto* max = s.if_contains("maxProperties"); max && size > max->get_int64()) return false;
    if (const auto* names = s.if_contains("propertyNames")) {
      for (const auto& member : object) {
        if (!holds(*names, json::value(member.key()))) return false;
      }
    }
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

}  // namespace zinc
