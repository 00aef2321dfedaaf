#include "constrain/schema_overlap.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace zinc {
namespace {

using Values = std::vector<const json::value*>;

bool are_equal(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

bool is_nullable(const json::object& schema) {
  const json::value* nullable = schema.if_contains("nullable");
  return nullable && *nullable == true;
}

class DisjointTest {
 public:
  explicit DisjointTest(size_t& n_steps_left) : n_steps_left_(n_steps_left) {}

  bool holds(const json::value& a, const json::value& b) {
    if (!spend(1) || !a.is_object() || !b.is_object()) return false;
    const json::object &one = a.get_object(), &other = b.get_object();
    return has_disjoint_values(one, other) || has_disjoint_types(one, other) || has_discriminator(one, other);
  }

 private:
  bool spend(size_t n_steps) {
    const bool is_exceeded = n_steps > n_steps_left_;
    n_steps_left_ = is_exceeded ? 0 : n_steps_left_ - n_steps;
    return !is_exceeded;
  }

  static std::optional<Values> values_of(const json::object& schema) {
    if (is_nullable(schema)) return std::nullopt;
    if (const json::value* constant = schema.if_contains("const")) return Values{constant};
    const json::value* list = schema.if_contains("enum");
    if (!list || !list->is_array()) return std::nullopt;
    Values out;
    for (const json::value& value : list->get_array()) out.push_back(&value);
    return out;
  }

  bool has_disjoint_values(const json::object& a, const json::object& b) {
    const std::optional<Values> one = values_of(a), other = values_of(b);
    if (!one || !other || !spend(one->size() * other->size())) return false;
    return std::ranges::none_of(*one, [&](const json::value* value) {
      return std::ranges::any_of(*other, [&](const json::value* same) { return are_equal(*value, *same); });
    });
  }

  // An integer is a number. Without "type", "properties" imply an object here.
  static std::vector<std::string_view> types_of(const json::object& schema) {
    std::vector<std::string_view> out;
    const auto add = [&](const json::value& type) {
      if (!type.is_string()) return;
      const std::string_view name = type.get_string();
      out.push_back(name == "integer" ? "number" : name);
    };
    if (is_nullable(schema)) return {};
    const json::value* type = schema.if_contains("type");
    if (type && type->is_array()) {
      for (const json::value& name : type->get_array()) add(name);
    } else if (type) {
      add(*type);
    } else if (schema.contains("properties")) {
      out.push_back("object");
    }
    return out;
  }

  static bool has_disjoint_types(const json::object& a, const json::object& b) {
    const std::vector<std::string_view> one = types_of(a), other = types_of(b);
    if (one.empty() || other.empty()) return false;
    return std::ranges::none_of(one,
                                [&](std::string_view type) { return std::ranges::find(other, type) != other.end(); });
  }

  bool requires_property(const json::object& schema, std::string_view name) {
    const json::value* required = schema.if_contains("required");
    if (!required || !required->is_array() || !spend(required->get_array().size())) return false;
    return std::ranges::any_of(required->get_array(), [&](const json::value& value) {
      return value.is_string() && value.get_string() == name;
    });
  }

  bool has_discriminator(const json::object& a, const json::object& b) {
    const auto is_object = [](const json::object& schema) {
      return types_of(schema) == std::vector<std::string_view>{"object"};
    };
    const json::value *one = a.if_contains("properties"), *other = b.if_contains("properties");
    if (!is_object(a) || !is_object(b) || !one || !other || !one->is_object() || !other->is_object()) return false;
    return std::ranges::any_of(one->get_object(), [&](const json::key_value_pair& property) {
      const json::value* same = other->get_object().if_contains(property.key());
      if (!spend(1) || !same || !property.value().is_object() || !same->is_object()) return false;
      return requires_property(a, property.key()) && requires_property(b, property.key()) &&
             has_disjoint_values(property.value().get_object(), same->get_object());
    });
  }

  size_t& n_steps_left_;
};

}  // namespace

bool are_pairwise_disjoint(const std::vector<const json::value*>& schemas, size_t& n_steps_left) {
  DisjointTest test(n_steps_left);
  for (size_t i = 0; i < schemas.size(); ++i) {
    for (size_t j = i + 1; j < schemas.size(); ++j) {
      if (!test.holds(*schemas[i], *schemas[j])) return false;
    }
  }
  return true;
}

}  // namespace zinc
