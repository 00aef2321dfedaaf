#include "server/fields.h"

#include <algorithm>
#include <cmath>

#include "base/sanitize_for_terminal.h"

namespace zinc {
namespace {

constexpr size_t kMaxShown = 80;  // characters of a value in a message

std::string quoted_value(const json::value& value) {
  std::string text = value.is_object() || value.is_array() ? std::string(json_type(value)) : to_json(value);
  if (text.size() > kMaxShown) text = sanitize_for_terminal(text, kMaxShown);
  return text;
}

bool is_empty(const json::value& value) {
  return (value.is_string() && value.get_string().empty()) || (value.is_array() && value.get_array().empty());
}

}  // namespace

std::string_view json_type(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
    default:
      return "a number";
  }
}

std::string text_of(const json::string& text) { return {text.data(), text.size()}; }

const json::value* FieldReader::value(std::string_view name) const {
  const json::value* found = object_.if_contains(name);
  return found && !found->is_null() ? found : nullptr;
}

void FieldReader::add_type_error(std::string_view name, std::string_view what, const json::value& found) const {
  errors_.add(name_of(name), "'{}' is {}; expected {}", name_of(name), quoted_value(found), what);
}

std::optional<bool> FieldReader::boolean(std::string_view name) const {
  const json::value* found = value(name);
  if (!found) return {};
  if (!found->is_bool()) return add_type_error(name, "true or false", *found), std::nullopt;
  return found->get_bool();
}

std::optional<int64_t> FieldReader::integer(std::string_view name, int64_t low, int64_t high) const {
  const json::value* found = value(name);
  if (!found) return {};
  std::optional<int64_t> number;
  if (found->is_int64()) number = found->get_int64();
  if (found->is_double()) {  // some languages write 5.0 for 5
    const double real = found->get_double();
    if (std::fabs(real) < 9e15 && real == std::floor(real)) number = static_cast<int64_t>(real);
  }
  if (!number || *number < low || *number > high) {
    const bool open_ended = high >= std::numeric_limits<int32_t>::max();
    add_type_error(
        name,
        open_ended ? fmt::format("an integer, {} or more", low) : fmt::format("an integer from {} to {}", low, high),
        *found);
    return {};
  }
  return number;
}

std::optional<double> FieldReader::number(std::string_view name) const {
  const json::value* found = value(name);
  if (!found) return {};
  if (found->is_double()) return found->get_double();
  if (found->is_int64()) return static_cast<double>(found->get_int64());
  if (found->is_uint64()) return static_cast<double>(found->get_uint64());
  add_type_error(name, "a number", *found);
  return {};
}

std::optional<std::string> FieldReader::text(std::string_view name) const {
  const json::value* found = value(name);
  if (!found) return {};
  if (!found->is_string()) return add_type_error(name, "a string", *found), std::nullopt;
  return text_of(found->get_string());
}

const json::array* FieldReader::array(std::string_view name) const {
  const json::value* found = value(name);
  if (!found) return nullptr;
  if (!found->is_array()) return add_type_error(name, "an array", *found), nullptr;
  return &found->get_array();
}

const json::object* FieldReader::object(std::string_view name) const {
  const json::value* found = value(name);
  if (!found) return nullptr;
  if (!found->is_object()) return add_type_error(name, "an object", *found), nullptr;
  return &found->get_object();
}

std::string FieldReader::required_text(std::string_view name) const {
  if (!value(name)) errors_.add(name_of(name), "'{}' is missing; expected a string", name_of(name));
  return text(name).value_or("");
}

std::vector<std::string> FieldReader::texts(std::string_view name) const {
  const json::value* found = value(name);
  if (!found) return {};
  if (found->is_string()) return {text_of(found->get_string())};
  if (!found->is_array())
    return add_type_error(name, "a string or an array of strings", *found), std::vector<std::string>();
  std::vector<std::string> out;
  for (const json::value& element : found->get_array()) {
    if (!element.is_string()) {
      add_type_error(fmt::format("{}[{}]", name, out.size()), "a string", element);
      return {};
    }
    out.push_back(text_of(element.get_string()));
  }
  return out;
}

void FieldReader::check_unsupported(std::span<const UnsupportedField> unsupported) const {
  for (const UnsupportedField& field : unsupported) {
    const json::value* found = value(field.name);
    if (!found || is_empty(*found)) continue;
    const std::string name = name_of(field.name);
    errors_.add(unsupported_field(name, fmt::format("'{}' is not supported: {}", name, field.why)));
  }
}

void FieldReader::check_known(const std::vector<std::span<const FieldDoc>>& known,
                              std::span<const UnsupportedField> unsupported) const {
  check_unsupported(unsupported);
  for (const auto& member : object_) {
    const std::string_view name(member.key().data(), member.key().size());
    const auto has_name = [name](const auto& field) { return field.name == name; };
    const auto lists_name = [&](std::span<const FieldDoc> list) { return std::ranges::any_of(list, has_name); };
    const bool is_known = member.value().is_null() || std::ranges::any_of(unsupported, has_name) ||
                          std::ranges::any_of(known, lists_name);
    if (!is_known) errors_.add_unknown_field(name_of(name));
  }
}

void for_each_object(const json::array& list, std::string_view name, RequestErrors& errors,
                     const std::function<void(const FieldReader& fields)>& visit) {
  for (size_t i = 0; i < list.size() && !errors.any(); ++i) {
    const std::string at = fmt::format("{}[{}]", name, i);
    if (!list[i].is_object()) return errors.add(at, "'{}' is {}; expected an object", at, json_type(list[i]));
    visit(FieldReader(list[i].get_object(), at + ".", errors));
  }
}

}  // namespace zinc
