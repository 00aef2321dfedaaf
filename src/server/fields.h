// Reads the fields of a JSON object by name and type. A missing or null field is nullopt; a wrong type or a value out
// of range is an error that gives the field, the expected range and the value.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"

namespace zinc {

// One request field: for telling unknown fields, and for the OpenAPI document, from which docs/api.md is generated.
struct FieldDoc {
  std::string_view name;
  std::string_view type;  // JSON type: "string", "integer", "number", "boolean", "array", "object"; "": several
  std::string_view text;
};

// A field that clients may send but this server does not support.
struct UnsupportedField {
  std::string_view name, why;
};

std::string_view json_type(const json::value& value);  // "a string", for messages
std::string text_of(const json::string& text);

class FieldReader {
 public:
  // `path` is the prefix of field names in messages: "", or "messages[3].". Both must outlive the reader.
  FieldReader(const json::object& object, std::string path, RequestErrors& errors)
      : object_(object), path_(std::move(path)), errors_(errors) {}

  const json::value* value(std::string_view name) const;  // nullptr: missing or null
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;
  const json::array* array(std::string_view name) const;
  const json::object* object(std::string_view name) const;

  std::string required_text(std::string_view name) const;  // an error if it is missing
  // A string or an array of strings.
  std::vector<std::string> texts(std::string_view name) const;

  // An error for the first field that is unsupported; an empty string or array counts as absent.
  void check_unsupported(std::span<const UnsupportedField> unsupported) const;
  // The same; and a field in none of the lists is unknown: ignored or an error (RequestErrors).
  void check_known(const std::vector<std::span<const FieldDoc>>& known,
                   std::span<const UnsupportedField> unsupported = {}) const;

  const std::string& path() const { return path_; }
  std::string name_of(std::string_view field) const { return path_ + std::string(field); }
  RequestErrors& errors() const { return errors_; }

 private:
  void add_type_error(std::string_view name, std::string_view what, const json::value& found) const;

  const json::object& object_;
  std::string path_;
  RequestErrors& errors_;
};

// Calls `visit` with the fields of each element until an error occurs; all elements must be objects. `name` is the
// array's: fields of the first element of "tools" are reported as "tools[0].name".
void for_each_object(const json::array& list, std::string_view name, RequestErrors& errors,
                     const std::function<void(const FieldReader& fields)>& visit);

}  // namespace zinc
